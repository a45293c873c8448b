from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.broker.server.loop_watch import LoopWatch, answered, frame_of
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData

EPOCHS_FROM = 3


@pytest.fixture
async def led(cluster: Any) -> Any:
    """Broker 2 leads `t`, and brokers 1 and 3 follow it; all are in sync."""
    await cluster.join(2, 3)
    await cluster.create("t", [2, 1, 3])
    return cluster


async def test_a_leader_takes_a_replica_out_of_the_in_sync_set_and_back(led: Any, version: int) -> None:
    out = await led.alter_isr(2, 1, leader=2, version=version)
    assert (out.error_code, out.leader_id, sorted(out.isr)) == (0, 2, [1, 2])
    assert out.partition_epoch == led.partition().partition_epoch
    assert sorted(led.partition().isr) == [1, 2]
    back = await led.alter_isr(2, 1, 3, leader=2, version=version)
    assert (back.error_code, sorted(back.isr)) == (0, [1, 2, 3])
    assert back.partition_epoch == out.partition_epoch + 1


async def test_what_rests_on_another_state_is_refused(led: Any, version: int) -> None:
    before = led.partition()
    for wrong, code in (
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"new_isr": [], "new_isr_with_epochs": []}, ErrorCode.INVALID_REQUEST),
    ):
        assert (await led.alter_isr(2, 1, leader=2, version=version, **wrong)).error_code == code
    assert led.partition() == before


async def test_only_the_leader_may_ask(led: Any, version: int) -> None:
    assert (await led.alter_isr(2, 1, leader=3, version=version)).error_code == ErrorCode.INVALID_REQUEST
    assert len(led.partition().isr) == 3


async def test_a_replica_that_is_fenced_is_not_eligible(led: Any, version: int) -> None:
    await led.heartbeat(3, want_fence=True)
    assert sorted(led.partition().isr) == [1, 2]
    told = await led.alter_isr(2, 1, 3, leader=2, version=version)
    assert told.error_code == ErrorCode.INELIGIBLE_REPLICA


async def test_a_replica_that_has_restarted_since_is_not_eligible(led: Any) -> None:
    await led.alter_isr(2, 1, leader=2)
    old = [BrokerState(broker_id=each, broker_epoch=led.epochs[each]) for each in (2, 1)]
    stale = BrokerState(broker_id=3, broker_epoch=led.epochs[3] - 1)
    told = await led.alter_isr(2, 1, 3, leader=2, version=EPOCHS_FROM, new_isr_with_epochs=[*old, stale])
    assert told.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert sorted(led.partition().isr) == [1, 2]


async def test_a_broker_that_is_no_replica_cannot_be_in_sync(led: Any, version: int) -> None:
    await led.join(4)
    assert (await led.alter_isr(2, 4, leader=2, version=version)).error_code == ErrorCode.INVALID_REQUEST


async def test_the_sender_must_be_registered_under_its_epoch(led: Any, version: int) -> None:
    for broker_id, epoch in ((2, led.epochs[2] - 1), (4711, 1)):
        answer = await led.controller.ask(AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch), version)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_an_unknown_topic_does_not_hold_up_the_others(led: Any, version: int) -> None:
    data = PartitionData(partition_index=0)
    topics = [TopicData(topic_id=b"?" * 16, partitions=[data])]
    request = AlterPartitionRequest(broker_id=2, broker_epoch=led.epochs[2], topics=topics)
    answer = await led.controller.ask(request, version)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_clients_cannot_ask(led: Any) -> None:
    led.client.send(AlterPartitionRequest(broker_id=2, broker_epoch=led.epochs[2]), 3)
    assert await led.client.closed_by_peer()


@pytest.mark.usefixtures("frozen_heap")
async def test_thousands_of_partitions_of_a_request_do_not_keep_others_waiting(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker asks for as many in one request after another broker has gone or come back."""
    await cluster.join(2, 3)
    await cluster.create("t", *[[2, 3]] * 5_000)
    topic = cluster.image.topics["t"]
    members = [BrokerState(broker_id=each, broker_epoch=cluster.epochs[each]) for each in (2,)]
    asked = [
        PartitionData(
            partition_index=index,
            leader_epoch=each.leader_epoch,
            new_isr_with_epochs=members,
            partition_epoch=each.partition_epoch,
        )
        for index, each in enumerate(topic.partitions)
    ]
    request = AlterPartitionRequest(
        broker_id=2, broker_epoch=cluster.epochs[2], topics=[TopicData(topic_id=topic.topic_id, partitions=asked)]
    )
    frame = frame_of(request, EPOCHS_FROM)
    watch = LoopWatch(monkeypatch)
    assert await asyncio.to_thread(answered, cluster.address, frame, 1)
    assert {each.isr for each in cluster.image.topics["t"].partitions} == {(2,)}
    seconds, what = watch.take()
    assert seconds < 0.04, what
