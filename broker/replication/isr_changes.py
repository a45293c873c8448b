"""Asking the controller for other in-sync sets (AlterPartition): gathered into one request, one under way at a time.

An answer may be lost after the controller agreed. So what was asked stays asked until the controller says no for
certain, or the metadata log shows a newer state of the partition: until then both sets count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from tidemark.broker.peers import Peers, PeerUnavailable
from tidemark.broker.replication.leadership import Leadership, Proposal
from tidemark.broker.replication.replicator import Led
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
NAMED_MAX: Final = 10  # partitions that one line of the log names

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

# Of these: another epoch has begun, so another broker leads.
_SUPERSEDED: Final = frozenset((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NEW_LEADER_ELECTED))

Key = tuple[bytes, int]


class IsrChanges:
    def __init__(
        self,
        *,
        node_id: int,
        peers: Peers,
        broker_epoch: Callable[[], int],
        applied: Callable[[Led], None],
        superseded: Callable[[Led], None] = lambda _partition: None,
    ) -> None:
        self._applied = applied
        self._superseded = superseded
        self._node_id = node_id
        self._peers = peers
        self._broker_epoch = broker_epoch
        self._queue: dict[Key, tuple[Led, Proposal]] = {}
        self._filled = asyncio.Event()
        self._last_error = ""  # why the last request failed: said once
        self._task = asyncio.get_running_loop().create_task(self._run())

    def propose(self, partition: Led, proposal: Proposal) -> None:
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
            if str(error) != self._last_error:
                self._last_error = str(error)
                log.info("in-sync sets of %d partition(s) are asked for again: %s", len(batch), error)
            self._again(batch)
            await asyncio.sleep(RETRY_SECONDS)
            return
        except Exception:
            log.exception("asking for in-sync sets failed; it is tried again")
            self._again(batch)
            await asyncio.sleep(1.0)
            return
        self._last_error = ""
        self._process(response, batch)

    def _again(self, batch: dict[Key, tuple[Led, Proposal]]) -> None:
        self._queue = {**batch, **self._queue}
        self._filled.set()

    def _process(self, response: AlterPartitionResponse, batch: dict[Key, tuple[Led, Proposal]]) -> None:
        changed = []
        for topic in response.topics:
            for result in topic.partitions:
                asked = batch.pop((topic.topic_id, result.partition_index), None)
                if asked is None:
                    continue
                partition = asked[0]
                if _apply(*asked, result):
                    changed.append(f"{partition.topic}-{partition.index} {sorted(result.isr)}")
                    self._applied(partition)
                elif result.error_code in _SUPERSEDED:
                    self._superseded(partition)
                elif (unanswered := partition.leadership.proposal) not in (None, asked[1]):
                    self.propose(partition, unanswered)  # an earlier one, whose outcome is not known
        if changed:
            more = f" and {len(changed) - NAMED_MAX} more" if len(changed) > NAMED_MAX else ""
            log.info("in sync are now: %s%s", ", ".join(changed[:NAMED_MAX]), more)
        if batch:  # a controller that forgets to answer
            self._again(batch)


def _apply(partition: Led, proposal: Proposal, result: PartitionResult) -> bool:
    """Whether it is as we asked."""
    code = ErrorCode(result.error_code)
    where = f"{partition.topic}-{partition.index}"
    if code == ErrorCode.NONE:
        if result.leader_epoch == partition.leader_epoch and _is_safe_to_apply(partition.leadership, result):
            partition.apply_isr(isr=tuple(result.isr), partition_epoch=result.partition_epoch)
            return True
    elif code in _WAIT_FOR_THE_IMAGE:
        log.info("%s: the controller knows a newer state: %s", where, code.name)
    else:
        log.info("%s: the controller will not have %s in sync: %s", where, sorted(proposal.members), code.name)
        partition.refused(proposal)
    return False


def _is_safe_to_apply(leadership: Leadership, result: PartitionResult) -> bool:
    """Before the metadata log says the same. Not if a replica leaves: to commit without it we must know what the
    controller knew when it agreed. If min.insync.replicas was raised just before, it stays eligible to lead."""
    return result.partition_epoch <= leadership.partition_epoch or set(leadership.isr) <= set(result.isr)


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
