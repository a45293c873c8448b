"""From the image to roles: who leads, who follows, whose replica goes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import TOPIC_RESOURCE
from tidemark.broker.replication import role_assignment
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_logs import ReplicaLogs
from tidemark.protocol.errors import ErrorCode
from tidemark.storage import CorruptLog, Log, LogOffline, truncation

from .conftest import Cluster

New = Callable[..., Cluster]


async def test_one_leads_and_the_others_follow(new_cluster: New) -> None:
    cluster = new_cluster()
    assert isinstance(cluster.replica(1), Partition)
    assert [type(cluster.replica(node)) for node in (2, 3)] == [Followed, Followed]
    assert cluster.replica(2).leader == 1


async def test_a_change_of_the_in_sync_set_leaves_the_leadership_as_it_is(new_cluster: New) -> None:
    cluster = new_cluster()
    led = cluster.led(1)
    cluster.become(isr=(1, 2))
    assert cluster.led(1) is led
    assert led.leadership.isr == (1, 2)


async def test_a_new_epoch_of_the_same_leader_is_another_leadership(new_cluster: New) -> None:
    """A producer that waited in the old one cannot know whether its records are committed."""
    cluster = new_cluster()
    await cluster.stop(2)
    await cluster.stop(3)
    led, failed = cluster.led(1), list[Exception | None]()
    led.await_high_watermark(cluster.append(1, b"a"), failed.append)
    cluster.become(leader=1)
    assert cluster.led(1) is not led
    (error,) = failed
    assert isinstance(error, Refused)
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.led(1).log is led.log


async def test_roles_are_exchanged_without_a_log_being_opened_anew(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2)
    logs = {node: cluster.replica(node).log for node in (1, 2)}
    cluster.become(leader=2)
    assert isinstance(cluster.replica(1), Followed)
    assert isinstance(cluster.replica(2), Partition)
    assert {node: cluster.replica(node).log for node in (1, 2)} == logs


def _held_truncation(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Truncations wait until it is set."""
    goes_on, real = threading.Event(), truncation.truncate_to

    def truncate_to(log: Log, offset: int) -> bool:
        assert goes_on.wait(10)
        return real(log, offset)

    monkeypatch.setattr(truncation, "truncate_to", truncate_to)
    return goes_on


async def _with_a_truncation_under_way(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> tuple[Cluster, threading.Event, asyncio.Future[None]]:
    """Of the log that node 2 follows. It goes on when the event is set, and then the future is done."""
    cluster = new_cluster()
    cluster.append(1, b"a", b"b")
    assert await cluster.acknowledged(1, cluster.append(1, b"c")) is None
    goes_on = _held_truncation(monkeypatch)
    return cluster, goes_on, cluster.replica(2).truncate_to_leader(epoch=cluster.partition.leader_epoch, end_offset=2)


@pytest.mark.parametrize("change", [{"leader": 2}, {"replicas": (1, 3), "isr": (1,)}], ids=["leads", "leaves"])
async def test_a_log_that_is_being_truncated_changes_roles_when_it_is_whole(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """On a disk that hangs, that may be never: nothing else waits for it."""
    cluster, goes_on, done = await _with_a_truncation_under_way(new_cluster, monkeypatch)
    followed = cluster.replica(2)
    cluster.become(**change)
    assert cluster.replica(2) is followed
    goes_on.set()
    await done
    if "leader" in change:
        led = cluster.led(2)
        assert led.log is followed.log
        assert led.leadership.start_offset == led.log.end_offset == 2
    else:
        assert cluster.nodes[2].table.topics["t"].replica(0) is None


async def test_a_leadership_that_waits_for_a_truncation_that_hangs_is_left_to_another(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_assignment, "STALLED_SECONDS", 0.02)
    cluster, goes_on, done = await _with_a_truncation_under_way(new_cluster, monkeypatch)
    cluster.become(leader=2)
    await cluster.until(lambda: cluster.partition.leader != 2)
    assert 2 not in cluster.partition.isr
    goes_on.set()
    await done
    await cluster.until(lambda: cluster.values(2) == [b"a", b"b", b"c"])


async def test_a_deleted_log_that_is_being_truncated_goes_when_that_is_done(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster, goes_on, done = await _with_a_truncation_under_way(new_cluster, monkeypatch)
    cluster.drop("t")
    assert not done.done()
    assert (tmp_path / "2" / "t-0").is_dir()
    goes_on.set()
    await done
    await cluster.until(lambda: not (tmp_path / "2" / "t-0").exists())
    assert not cluster.directories[2].logs


async def test_a_topic_that_is_made_again_waits_for_the_truncation_of_the_old_ones_log(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, goes_on, _ = await _with_a_truncation_under_way(new_cluster, monkeypatch)
    old = cluster.replica(2)
    cluster.drop("t")
    cluster.make_again("t")
    assert cluster.nodes[2].table.topics["t"].replica(0) is None
    assert cluster.led(1).log.end_offset == 0
    goes_on.set()
    await cluster.until(lambda: cluster.nodes[2].table.topics["t"].replica(0) is not None)
    new = cluster.replica(2)
    assert new.log is not old.log
    assert new.topic_id == cluster.topic_ids["t"] != old.topic_id
    await cluster.acknowledged(1, cluster.append(1, b"d"))
    await cluster.until(lambda: cluster.values(2) == [b"d"])


async def test_a_node_that_stops_deletes_a_log_that_is_being_truncated_first(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster, goes_on, _ = await _with_a_truncation_under_way(new_cluster, monkeypatch)
    cluster.drop("t")
    stopping = asyncio.ensure_future(cluster.nodes[2].roles.stop_following())
    await asyncio.sleep(0)
    goes_on.set()
    await stopping
    assert not (tmp_path / "2" / "t-0").exists()


async def test_a_directory_that_fails_does_not_wait_for_a_truncation_in_it(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails may hang first, and the truncation with it."""
    cluster, goes_on, done = await _with_a_truncation_under_way(new_cluster, monkeypatch)
    cluster.directories[2].fail("gone")
    cluster.nodes[2].roles.directory_failed(cluster.directories[2], "gone")
    hosted = cluster.nodes[2].table.topics["t"]
    assert hosted.replica(0) is None
    assert hosted.offline == {0: "gone"}
    assert not done.done()
    goes_on.set()
    with pytest.raises(LogOffline):
        await done


async def test_a_replica_that_is_not_assigned_any_more_is_deleted(new_cluster: New, tmp_path: Path) -> None:
    cluster = new_cluster()
    assert (tmp_path / "3" / "t-0").is_dir()
    cluster.become(replicas=(1, 2), isr=(1, 2))
    assert cluster.nodes[3].table.topics["t"].replica(0) is None
    assert not (tmp_path / "3" / "t-0").exists()


async def test_deleted_topics_that_are_left_when_a_node_stops_go_on_its_event_loop(
    new_cluster: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that wait for their partitions are answered there, and the slices that it had planned go on meanwhile."""
    cluster = new_cluster()
    roles, table = cluster.nodes[1].roles, cluster.nodes[1].table
    threads, resign = [], Partition.resign

    def noting_the_thread(partition: Partition, error: Exception) -> None:
        threads.append(threading.get_ident())
        resign(partition, error)

    monkeypatch.setattr(Partition, "resign", noting_the_thread)
    hosted = table.topics.pop("t")
    table.topics_by_id.pop(hosted.topic_id)
    roles._to_drop[("t", 0)] = [hosted]
    asyncio.get_running_loop().call_soon(roles._drop_in_slices)
    await roles.stop_following()
    assert threads == [threading.get_ident()]
    assert not (tmp_path / "1" / "t-0").exists()


async def test_settings_of_a_topic_reach_its_replicas(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2)
    cluster.configure({(TOPIC_RESOURCE, "t"): {"segment.bytes": "2000000"}})
    assert [cluster.replica(node).log.config.segment_bytes for node in (1, 2)] == [2_000_000] * 2


async def test_a_leader_that_cannot_open_its_log_leaves_it_to_another(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(nodes=2)
    await cluster.stop(1)
    found = ReplicaLogs.find_or_create

    def fail_on_1(logs: ReplicaLogs, *arguments: object) -> object:
        if cluster.nodes.get(2) and logs is not cluster.nodes[2].roles._logs:
            raise CorruptLog(path="t-0", position=0, reason="a bit was flipped")
        return found(logs, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ReplicaLogs, "find_or_create", fail_on_1)
    cluster.start(1)
    assert "a bit was flipped" in cluster.nodes[1].table.topics["t"].offline[0]
    await cluster.until(lambda: cluster.partition.leader == 2)
    assert cluster.altered[0] == {2}


async def test_after_the_end_the_metadata_is_not_followed(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2)
    led = cluster.led(1)
    cluster.nodes[1].roles.close()
    cluster.become(leader=2)
    assert cluster.led(1) is led
