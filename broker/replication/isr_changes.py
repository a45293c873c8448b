"""Asking the controller for other in-sync sets (AlterPartition): gathered into one request, one under way at a time.

An answer may be lost after the controller agreed. So what was asked stays asked until the controller says no for
certain, or the metadata log shows a newer state of the partition: until then both sets count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from tidemark.broker.peers import Peers, PeerUnavailable
from tidemark.broker.replication.leadership import Leadership, Proposal
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)

log = logging.getLogger(__name__)

VERSION: Final = 3
ANSWER_SECONDS_MAX: Final = 5.0
RETRY_SECONDS: Final = 0.05
BATCH_MAX: Final = 5_000
TOLD_MAX: Final = 10  # partitions that one line of the log names

# The controller knows better; what it knows is on its way to us.
_WAIT_FOR_THE_IMAGE: Final = frozenset(
    (
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)

Key = tuple[bytes, int]


class Led(Protocol):
    """A partition whose leader we are."""

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int
    leadership: Leadership

    def settle(self, *, isr: tuple[int, ...], partition_epoch: int) -> None: ...

    def refused(self, proposal: Proposal) -> None: ...


class Unopened:
    """One that we are to lead and cannot, because its log does not open."""

    def __init__(self, *, topic: str, topic_id: bytes, index: int, leadership: Leadership) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leadership.leader_epoch
        self.leadership = leadership

    def settle(self, *, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.leadership.settle(isr=isr, partition_epoch=partition_epoch)

    def refused(self, proposal: Proposal) -> None:
        self.leadership.refused(proposal)


class InSyncChanges:
    def __init__(
        self, *, node_id: int, peers: Peers, broker_epoch: Callable[[], int], settled: Callable[[Led], None]
    ) -> None:
        self._settled = settled
        self._node_id = node_id
        self._peers = peers
        self._broker_epoch = broker_epoch
        self._queue: dict[Key, tuple[Led, Proposal]] = {}
        self._filled = asyncio.Event()
        self._trouble = ""  # why the last request failed: said once
        self._task = asyncio.get_running_loop().create_task(self._run())

    def ask(self, partition: Led, proposal: Proposal) -> None:
        self._queue[partition.topic_id, partition.index] = (partition, proposal)
        self._filled.set()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            batch = {key: self._queue[key] for key in list(self._queue)[:BATCH_MAX]}
            for key in batch:
                del self._queue[key]
            batch = {key: each for key, each in batch.items() if each[0].leadership.proposal is each[1]}
            if batch:
                await self._send(batch)
            if self._queue:
                self._filled.set()

    async def _send(self, batch: dict[Key, tuple[Led, Proposal]]) -> None:
        request = AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=_topics(batch.values())
        )
        try:
            link = self._peers.to_controller()
            response = await link.send(
                request, version=VERSION, timeout=ANSWER_SECONDS_MAX, response=AlterPartitionResponse
            )
            if response.error_code:
                raise PeerUnavailable(f"the controller refuses: {ErrorCode(response.error_code).name}")
        except PeerUnavailable as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.info("in-sync sets of %d partition(s) are asked for again: %s", len(batch), error)
            self._again(batch)
            await asyncio.sleep(RETRY_SECONDS)
            return
        except Exception:
            log.exception("asking for in-sync sets failed; it is tried again")
            self._again(batch)
            await asyncio.sleep(1.0)
            return
        self._trouble = ""
        self._take(response, batch)

    def _again(self, batch: dict[Key, tuple[Led, Proposal]]) -> None:
        self._queue = {**batch, **self._queue}
        self._filled.set()

    def _take(self, response: AlterPartitionResponse, batch: dict[Key, tuple[Led, Proposal]]) -> None:
        settled = []
        for topic in response.topics:
            for result in topic.partitions:
                asked = batch.pop((topic.topic_id, result.partition_index), None)
                if asked is not None and _settle(*asked, result):
                    settled.append(f"{asked[0].topic}-{asked[0].index} {sorted(result.isr)}")
                    self._settled(asked[0])
        if settled:
            more = f" and {len(settled) - TOLD_MAX} more" if len(settled) > TOLD_MAX else ""
            log.info("in sync are now: %s%s", ", ".join(settled[:TOLD_MAX]), more)
        if batch:  # a controller that forgets to answer
            self._again(batch)


def _settle(partition: Led, proposal: Proposal, result: PartitionResult) -> bool:
    """Whether it is as we asked."""
    code = ErrorCode(result.error_code)
    where = f"{partition.topic}-{partition.index}"
    if code == ErrorCode.NONE:
        if result.leader_epoch == partition.leader_epoch:
            partition.settle(isr=tuple(result.isr), partition_epoch=result.partition_epoch)
            return True
    elif code in _WAIT_FOR_THE_IMAGE:
        log.info("%s: the controller knows a newer state: %s", where, code.name)
    else:
        log.info("%s: the controller will not have %s in sync: %s", where, sorted(proposal.members), code.name)
        partition.refused(proposal)
    return False


def _topics(asked: Iterable[tuple[Led, Proposal]]) -> list[TopicData]:
    topics: dict[bytes, TopicData] = {}
    for partition, proposal in asked:
        topic = topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id))
        topic.partitions.append(
            PartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[BrokerState(broker_id=node, broker_epoch=epoch) for node, epoch in proposal.isr],
                partition_epoch=proposal.partition_epoch,
            )
        )
    return list(topics.values())


class LagCheck:
    """Regularly: who is in sync and does not keep up? A check that comes late itself (the process was stopped) proves
    nothing about others, and is left out: what they sent in the meantime is still to be read."""

    def __init__(self, *, seconds: Callable[[], float], check: Callable[[float], None]) -> None:
        self._seconds = seconds
        self._check = check
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            wait = self._seconds()
            started = time.monotonic()
            await asyncio.sleep(wait)
            now = time.monotonic()
            if now - started > 1.5 * wait + 1.0:
                continue
            try:
                self._check(now)
            except Exception:
                log.exception("looking for replicas that do not keep up failed; it is tried again")

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
