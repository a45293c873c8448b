"""Asking the controller for other in-sync sets: what is asked again, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tidemark.broker.peers import PeerUnavailable
from tidemark.broker.replication.isr_changes import IsrChanges
from tidemark.broker.replication.leadership import Leadership
from tidemark.broker.replication.replicator import UnopenedPartition
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)

TOPIC_ID = b"t" * 16


class Controller:
    """Answers as the test says, one function for each request."""

    def __init__(self, *answers: Callable[[], AlterPartitionResponse]) -> None:
        self.asked: list[tuple[int, ...]] = []  # the sets
        self._answers = list(answers)

    def to_controller(self) -> Controller:
        return self

    async def send(self, request: AlterPartitionRequest, **_: Any) -> AlterPartitionResponse:
        (partition,) = request.topics[0].partitions
        self.asked.append(tuple(each.broker_id for each in partition.new_isr_with_epochs))
        await asyncio.sleep(0)
        return self._answers.pop(0)()


def lost() -> AlterPartitionResponse:
    raise PeerUnavailable("the connection broke")


def refused() -> AlterPartitionResponse:
    result = PartitionResult(partition_index=0, error_code=ErrorCode.INVALID_REQUEST)
    return AlterPartitionResponse(topics=[TopicResult(topic_id=TOPIC_ID, partitions=[result])])


def granted(*isr: int) -> Callable[[], AlterPartitionResponse]:
    result = PartitionResult(partition_index=0, leader_id=1, leader_epoch=5, isr=list(isr), partition_epoch=8)
    return lambda: AlterPartitionResponse(topics=[TopicResult(topic_id=TOPIC_ID, partitions=[result])])


def partition_of(*, isr: tuple[int, ...]) -> UnopenedPartition:
    leadership = Leadership(
        node_id=1, leader_epoch=5, partition_epoch=7, replicas=(1, 2, 3), isr=isr, start_offset=0, now=0.0
    )
    return UnopenedPartition(topic="t", topic_id=TOPIC_ID, index=0, leadership=leadership)


def changes_to(controller: Controller) -> IsrChanges:
    return IsrChanges(node_id=1, peers=controller, broker_epoch=lambda: 1, applied=lambda _: None)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_was_asked_is_asked_again_until_it_is_answered() -> None:
    controller, partition = Controller(lost, lost, granted(1, 2, 3)), partition_of(isr=(1, 2))
    changes = changes_to(controller)
    changes.propose(partition, partition.leadership._propose((1, 2, 3), 1))
    await until(lambda: partition.leadership.isr == (1, 2, 3))
    assert controller.asked == [(1, 2, 3)] * 3
    assert partition.leadership.proposal is None
    await changes.stop()


async def test_an_expansion_that_stepping_aside_overtook_is_asked_again_when_that_is_refused() -> None:
    """Its outcome is not known: the controller may count the replica as in sync already."""
    controller, partition = Controller(lost, refused, granted(1, 2, 3)), partition_of(isr=(1, 2))
    changes = changes_to(controller)
    changes.propose(partition, partition.leadership._propose((1, 2, 3), 1))
    await until(lambda: len(controller.asked) == 1)
    aside = partition.leadership.propose_stepping_aside()
    assert aside is not None
    changes.propose(partition, aside)
    await until(lambda: partition.leadership.isr == (1, 2, 3))
    assert controller.asked == [(1, 2, 3), (2,), (1, 2, 3)]
    await changes.stop()
