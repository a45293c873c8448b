from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode


def told(answer: Any) -> tuple[bool, bool, bool]:
    assert answer.error_code == ErrorCode.NONE
    return answer.is_caught_up, answer.is_fenced, answer.should_shut_down


async def test_a_broker_is_unfenced_when_it_has_caught_up(cluster: Any, version: int) -> None:
    await cluster.register(2)
    behind = await cluster.heartbeat(2, version=version, current_metadata_offset=cluster.epochs[2] - 1)
    assert told(behind) == (False, True, False)
    assert cluster.image.brokers[2].fenced
    assert told(await cluster.heartbeat(2, version=version)) == (True, False, False)
    assert not cluster.image.brokers[2].fenced


async def test_a_broker_may_ask_to_be_fenced(cluster: Any, version: int) -> None:
    await cluster.join(2)
    await cluster.create("t", [2, 1])
    assert told(await cluster.heartbeat(2, version=version, want_fence=True)) == (True, True, False)
    assert cluster.partition().leader == 1
    assert told(await cluster.heartbeat(2, version=version, want_fence=True)) == (True, True, False)


async def test_a_broker_may_stop_when_others_lead_and_know_it(cluster: Any, version: int) -> None:
    await cluster.join(2, 3)
    await cluster.create("t", [2, 3])
    _, _, may_stop = told(await cluster.heartbeat(2, version=version, want_shut_down=True))
    assert not may_stop  # broker 3 has not seen yet that it leads
    assert cluster.partition().leader == 3
    await cluster.heartbeat(3)
    while not may_stop:  # node 1 is a broker, too, and is heard of soon
        _, _, may_stop = told(await cluster.heartbeat(2, version=version, want_shut_down=True))
        await cluster.heartbeat(3)


async def test_a_broker_must_name_its_epoch(cluster: Any, version: int) -> None:
    await cluster.join(2)
    cluster.epochs[4711] = cluster.epochs[2]
    for broker_id, epoch in ((2, cluster.epochs[2] - 1), (2, -1), (4711, cluster.epochs[2])):
        answer = await cluster.heartbeat(broker_id, version=version, broker_epoch=epoch)
        assert (answer.error_code, answer.is_fenced) == (ErrorCode.STALE_BROKER_EPOCH, True)
    assert not cluster.image.brokers[2].fenced
