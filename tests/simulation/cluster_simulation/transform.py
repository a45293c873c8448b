"""Consume, transform, produce: what was read is copied in transactions that commit the offsets, too (KIP-447)."""

from __future__ import annotations

import asyncio
import itertools
from random import Random
from typing import Any, Final

from cluster_simulation.clients import FENCED, RETRIABLE, Reader, Refusal, TransactionalProducer
from cluster_simulation.history import Anomaly, History, Place, Sent
from cluster_simulation.members import OUT, ClassicMember, Out
from tidemark.broker.peers import PeerUnavailable
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidemark.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidemark.simulation.client import GROUP, RETRY_SECONDS, KafkaClient

OUTPUT: Final = "copies"
COPIED_MAX: Final = 20


class _Output(TransactionalProducer):
    """The transaction's part of it."""

    async def add_offsets(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )

        async def once() -> int:
            answer = await self.ask_coordinator(self.name, request, AddOffsetsToTxnResponse, version=3)
            code: int = answer.error_code
            return code

        await self._until_done(once)


class Transformer(ClassicMember):
    def __init__(
        self, name: str, client: KafkaClient, history: History, random: Random, topics: list[str], outputs: list[Place]
    ) -> None:
        super().__init__(name, client, history, random, topics)
        self.outputs = outputs
        self.output = _Output(f"{name}-output", client, history, random, outputs)
        self.numbers = itertools.count()
        self._is_new = True

    async def join(self) -> None:
        if self._is_new:
            await self.output.init(self.output.name)
            self._is_new = False
        await super().join()

    async def work(self) -> None:
        for place, reader in list(self.owned.items()):
            if not self.is_trusted or place not in self.owned:
                return
            await self._copy(place, reader)

    async def _copy(self, place: Place, reader: Reader) -> None:
        begin = reader.offset
        taken: list[tuple[int, bytes]] = []
        reader.shown = lambda offset, value: taken.append((offset, value))
        await reader.poll()
        if reader.offset == begin or not self.is_trusted:
            reader.offset = begin
            return
        if len(taken) > COPIED_MAX:
            reader.offset = taken[COPIED_MAX][0]
            taken = taken[:COPIED_MAX]
        number = self.history.new_transaction()
        try:
            await self._transaction(number, place, reader.offset, taken)
        except (Refusal, Out) as error:
            self.history.decided.setdefault(number, "aborted")
            code = getattr(error, "code", None)
            if code is not None and code not in FENCED | OUT:
                raise Anomaly(f"{self.name}: {code.name}") from None
            await self.output.init(self.output.name)
            raise Out from None

    async def _transaction(self, number: int, place: Place, next_offset: int, taken: list[tuple[int, bytes]]) -> None:
        output, target = self.output, self.random.choice(self.outputs)
        known = self.history.committed.get((self.group, place), -1)
        if taken:
            await output.add_partition(target)
            await output.produce(target, self._copies(number, place, target, taken), output.name)
        await output.add_offsets(self.group)
        await self._commit_in_transaction(place, next_offset)
        commits = self.random.random() < 0.85
        if not commits:
            self.history.decided[number] = "aborted"
        await output.end(number, commit=commits)
        if not commits:
            raise Out  # from the committed offsets again
        self.history.has_committed(self.group, place, next_offset, known=known)
        self.history.last_ack[self.group] = monotonic()

    def _copies(self, number: int, place: Place, target: Place, taken: list[tuple[int, bytes]]) -> list[bytes]:
        made = []
        for offset, _ in taken:
            mine = next(self.numbers)
            value = f"{self.name} {mine} of {place[0]} {place[1]} {offset}".encode()
            self.history.sent[value] = Sent(
                place=target, producer=self.name, number=mine, transaction=number, source=(place, offset)
            )
            made.append(value)
        return made

    async def _commit_in_transaction(self, place: Place, offset: int) -> None:
        topic = TxnOffsetCommitRequestTopic(
            name=place[0],
            partitions=[TxnOffsetCommitRequestPartition(partition_index=place[1], committed_offset=offset)],
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.output.name,
            group_id=self.group,
            producer_id=self.output.producer_id,
            producer_epoch=self.output.epoch,
            generation_id=self.epoch,
            member_id=self.member_id,
            topics=[topic],
        )
        while True:
            code: Any = ErrorCode.NETWORK_EXCEPTION
            try:
                answer = await self.ask(request, TxnOffsetCommitResponse, version=3)
                code = answer.topics[0].partitions[0].error_code
            except PeerUnavailable:
                pass
            if code == ErrorCode.NONE:
                return
            if code not in RETRIABLE:
                raise Refusal(code)
            self.client.forget_coordinator(self.group, kind=GROUP)
            await asyncio.sleep(RETRY_SECONDS)
