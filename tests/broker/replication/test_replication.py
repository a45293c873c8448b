"""Leaders and followers over real logs: what is acknowledged is everywhere, and what is everywhere stays."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import TOPIC_RESOURCE
from tidemark.broker.replication.follower_progress import FollowerProgress
from tidemark.protocol.errors import ErrorCode
from tidemark.storage import WriteFailed

New = Callable[..., Any]


async def test_what_is_acknowledged_is_on_every_in_sync_replica(new_cluster: New) -> None:
    cluster = new_cluster()
    for number in range(20):
        assert await cluster.acknowledged(1, cluster.append(1, b"%d" % number)) is None
        for node in (2, 3):
            assert cluster.replica(node).log.end_offset == number + 1
    assert cluster.values(1) == cluster.values(2) == cluster.values(3) == [b"%d" % number for number in range(20)]


async def test_followers_learn_the_high_watermark(new_cluster: New) -> None:
    cluster = new_cluster()
    cluster.append(1, b"a", b"b")
    await cluster.until(lambda: cluster.replica(2).high_watermark == cluster.replica(3).high_watermark == 2)


async def test_nothing_is_acknowledged_while_a_member_is_silent_until_it_is_out(new_cluster: New) -> None:
    cluster = new_cluster(**{"replica.lag.time.max.ms": "400"})
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    cluster.cut = {(3, 1), (1, 3)}
    last = cluster.append(1, b"b")
    await cluster.until(lambda: cluster.replica(2).log.end_offset == 2)
    assert cluster.led(1).must_wait(last)
    assert await cluster.acknowledged(1, last) is None
    assert cluster.altered[0] == {1, 2}
    cluster.cut = set()
    await cluster.until(lambda: cluster.altered[-1] == {1, 2, 3})
    assert cluster.values(3) == [b"a", b"b"]


async def test_with_too_few_in_sync_nothing_is_committed_and_a_producer_that_waits_is_refused(new_cluster: New) -> None:
    cluster = new_cluster(**{"min.insync.replicas": "2", "replica.lag.time.max.ms": "300"})
    told: list[Exception | None] = []
    cluster.cut = {(2, 1), (3, 1)}
    last = cluster.append(1, b"a")
    cluster.led(1).await_high_watermark(last, told.append, fails_below_min_isr=True)
    await cluster.until(lambda: told)
    assert isinstance(told[0], Refused)
    assert told[0].code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert cluster.led(1).too_few_in_sync
    assert cluster.led(1).high_watermark == 0
    cluster.cut = set()
    assert await cluster.acknowledged(1, last) is None


async def test_a_new_leader_has_everything_and_the_old_one_gives_way(new_cluster: New) -> None:
    cluster = new_cluster()
    await cluster.acknowledged(1, cluster.append(1, b"kept"))
    cluster.cut = {(2, 1), (3, 1)}
    lost: list[Exception | None] = []
    cluster.led(1).await_high_watermark(cluster.append(1, b"never committed", b"nor this"), lost.append)
    cluster.become(leader=2, isr=(2, 3))
    assert isinstance(lost[0], Refused)
    assert lost[0].code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.cut = set()
    assert await cluster.acknowledged(2, cluster.append(2, b"next")) is None
    await cluster.until(lambda: cluster.values(1) == [b"kept", b"next"])
    assert cluster.values(2) == cluster.values(3) == [b"kept", b"next"]
    await cluster.until(lambda: cluster.altered and cluster.altered[-1] == {1, 2, 3})


async def test_an_old_leader_that_has_not_heard_commits_nothing(new_cluster: New) -> None:
    cluster = new_cluster()
    await cluster.acknowledged(1, cluster.append(1, b"a"))
    cluster.become(leader=2, except_for=(1,))
    told: list[Exception | None] = []
    cluster.led(1).await_high_watermark(cluster.append(1, b"zombie"), told.append)
    cluster.append(2, b"b")
    await cluster.until(lambda: cluster.replica(3).log.end_offset == 2)
    assert cluster.led(1).high_watermark == 1
    assert not told
    cluster.tell(cluster.nodes[1])
    await cluster.until(lambda: cluster.values(1) == [b"a", b"b"])
    assert isinstance(told[0], Refused)


async def test_an_epoch_without_records_is_no_obstacle(new_cluster: New) -> None:
    cluster = new_cluster()
    await cluster.acknowledged(1, cluster.append(1, b"a"))
    for leader in (2, 3, 1, 3, 2, 1):
        cluster.become(leader=leader)
    for leader in (3, 1, 2):
        cluster.become(leader=leader)
        assert await cluster.acknowledged(leader, cluster.append(leader, b"by %d" % leader)) is None
    assert cluster.values(1) == cluster.values(2) == cluster.values(3)


async def test_a_new_leader_does_not_show_what_may_not_be_committed(new_cluster: New) -> None:
    cluster = new_cluster()
    await cluster.acknowledged(1, cluster.append(1, b"a"))
    cluster.cut = {(3, 1), (3, 2)}
    cluster.append(1, b"b")
    await cluster.until(lambda: cluster.replica(2).log.end_offset == 2)
    cluster.become(leader=2)
    assert cluster.led(2).high_watermark <= 1 < cluster.led(2).leadership.start_offset
    cluster.cut = set()
    await cluster.until(lambda: cluster.led(2).high_watermark == 2)


async def test_a_restarted_follower_catches_up(new_cluster: New) -> None:
    cluster = new_cluster(**{"replica.lag.time.max.ms": "300"})
    await cluster.acknowledged(1, cluster.append(1, b"a"))
    await cluster.stop(3, clean=False)
    assert await cluster.acknowledged(1, cluster.append(1, b"b")) is None
    cluster.start(3)
    await cluster.until(lambda: cluster.replica(3).log.end_offset == 2)
    await cluster.until(lambda: cluster.altered[-1] == {1, 2, 3})


async def test_a_follower_that_fell_behind_the_leaders_start_begins_there(new_cluster: New) -> None:
    cluster = new_cluster(**{"replica.lag.time.max.ms": "300"})
    await cluster.acknowledged(1, cluster.append(1, b"a"))
    await cluster.stop(3)
    for number in range(5):
        assert await cluster.acknowledged(1, cluster.append(1, b"%d" % number)) is None
    cluster.led(1).log.delete_before(4)
    cluster.start(3)
    await cluster.until(lambda: cluster.values(3) == [b"3", b"4"])
    await cluster.until(lambda: cluster.altered[-1] == {1, 2, 3})


async def test_the_start_of_the_log_travels_to_followers(new_cluster: New) -> None:
    cluster = new_cluster()
    for number in range(5):
        await cluster.acknowledged(1, cluster.append(1, b"%d" % number))
    await cluster.until(lambda: all(cluster.replica(node).high_watermark == 5 for node in (2, 3)))
    cluster.led(1).delete_before(3)
    await cluster.until(lambda: all(cluster.replica(node).log.start_offset == 3 for node in (2, 3)))


async def test_a_lost_answer_of_the_controller_is_made_good_by_the_image(new_cluster: New) -> None:
    cluster = new_cluster(**{"replica.lag.time.max.ms": "300"})
    cluster.cut = {(3, 1)}
    answers = iter(("lose", "agree"))
    cluster.answer_alter = lambda _: next(answers, "agree")
    last = cluster.append(1, b"a")
    await cluster.until(lambda: cluster.altered[:1] == [{1, 2}])
    assert cluster.led(1).must_wait(last), "it has not heard that the controller agreed"
    for replicas in cluster.nodes.values():
        cluster.tell(replicas)
    assert await cluster.acknowledged(1, last) is None


async def test_a_refused_member_does_not_hold_up_the_others(new_cluster: New) -> None:
    cluster = new_cluster(**{"replica.lag.time.max.ms": "300"})
    cluster.become(isr=(1, 2))
    cluster.answer_alter = lambda _: "refuse"
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    await cluster.until(lambda: cluster.replica(3).log.end_offset == 1)
    assert cluster.led(1).leadership.isr == (1, 2)


async def test_flush_each_means_on_every_disk(new_cluster: New) -> None:
    cluster = new_cluster(**{"log.flush.interval.messages": "1"})
    for number in range(3):
        assert await cluster.acknowledged(1, cluster.append(1, b"%d" % number)) is None
        for node in (1, 2, 3):
            assert cluster.replica(node).log.recovery_point == number + 1


async def test_a_corrupt_follower_is_rebuilt_once_nobody_relies_on_it(new_cluster: New) -> None:
    cluster = new_cluster(**{"replica.lag.time.max.ms": "300"})
    for number in range(3):
        await cluster.acknowledged(1, cluster.append(1, b"number %d" % number))
    await cluster.stop(3, clean=False)
    segment = next((cluster.directory / "3" / "t-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[70] ^= 0xFF
    segment.write_bytes(data)
    cluster.start(3)
    assert 0 in cluster.nodes[3].table.topics["t"].offline
    cluster.append(1, b"more")
    await cluster.until(lambda: cluster.altered[:1] == [{1, 2}])
    await cluster.until(lambda: cluster.altered[-1] == {1, 2, 3})
    assert cluster.values(3) == cluster.values(1)


async def test_a_leader_that_cannot_write_leaves_it_to_another(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster()
    await cluster.acknowledged(1, cluster.append(1, b"a"))

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "no space left")

    active = cluster.led(1).log.segments.active
    with monkeypatch.context() as disk:
        disk.setattr(active, "_write", full)
        with pytest.raises(WriteFailed):
            cluster.append(1, b"b")
        await cluster.until(lambda: cluster.partition.leader == 2)
        assert await cluster.acknowledged(2, cluster.append(2, b"c")) is None
        assert cluster.values(1) == [b"a"]
    await cluster.until(lambda: cluster.values(1) == [b"a", b"c"])
    await cluster.until(lambda: cluster.altered[-1] == {1, 2, 3})


async def test_a_new_replica_that_hears_of_it_before_its_leader_does_comes_into_sync(new_cluster: New) -> None:
    cluster = new_cluster()
    cluster.become(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=1)
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    cluster.become(replicas=(1, 2, 3), except_for=(1,))
    await cluster.until(lambda: cluster.replica(3).failures > 0)
    cluster.tell(cluster.nodes[1])
    await cluster.until(lambda: cluster.partition.isr == (1, 2, 3))
    assert cluster.values(3) == [b"a"]


async def test_a_follower_with_an_empty_log_beyond_its_leaders_end_begins_anew(new_cluster: New) -> None:
    """Its records were deleted, and then a leader was elected that had lost as many: there is no epoch to compare."""
    cluster = new_cluster(nodes=2)
    await cluster.stop(2)
    cluster.become(isr=(1,))
    cluster.append(1, b"a", b"b")
    cluster.start(2)
    await cluster.replica(2).restart_at(100)
    await cluster.until(lambda: cluster.values(2) == [b"a", b"b"])
    await cluster.until(lambda: cluster.partition.isr == (1, 2))


async def test_a_follower_stuck_at_what_was_deleted_meanwhile_does_not_make_its_leader_give_up(
    new_cluster: New,
) -> None:
    cluster = new_cluster(nodes=2)
    assert await cluster.acknowledged(1, cluster.append(1, b"a", b"b")) is None
    led = cluster.led(1)
    led.delete_before(2)
    FollowerProgress(cluster.nodes[1].roles).stuck_at(led, 0)
    assert await cluster.acknowledged(1, cluster.append(1, b"c")) is None
    assert not cluster.altered, "nothing is damaged"


async def turns() -> None:
    """The loop has gone round so often that everything which can go on has gone on."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_replica_that_leaves_counts_until_the_metadata_log_says_so(new_cluster: New) -> None:
    """min.insync.replicas was raised before the controller agreed, and the leader does not know yet: the replica stays
    eligible to lead, so what is committed without it would be lost."""
    cluster = new_cluster(nodes=2, **{"min.insync.replicas": "1", "replica.lag.time.max.ms": "300"})
    cluster.answer_alter = lambda _: "early"  # than the metadata log
    cluster.cut.update(((2, 1), (1, 2)))
    last = cluster.append(1, b"a")
    await cluster.until(lambda: cluster.altered == [frozenset((1,))])
    await turns()
    assert cluster.led(1).must_wait(last)
    cluster.configure({(TOPIC_RESOURCE, "t"): {"min.insync.replicas": "2"}})
    await turns()
    assert cluster.led(1).must_wait(last)
    assert cluster.led(1).too_few_in_sync


async def test_a_lease_that_lapses_for_a_moment_fails_no_acknowledgement(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2)
    cluster.cut.update(((2, 1), (1, 2)))
    told: list[Exception | None] = []
    cluster.led(1).await_high_watermark(cluster.append(1, b"a"), told.append, fails_below_min_isr=True)
    table, replicator = cluster.nodes[1].table, cluster.nodes[1].roles.replicator
    table.lease_until = 0.0
    replicator._check_lease()
    table.lease_until = float("inf")
    replicator._check_lease()
    table.lease_until = 0.0
    replicator._check_lease()
    assert not told, "its process stood still, and it leads on"
    replicator._check_lease()
    assert isinstance(told[0], Refused), "it is cut off"
