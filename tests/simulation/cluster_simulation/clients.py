"""Clients of a simulated cluster. They speak the real protocol, retry as Kafka's do, and note what they are told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from cluster_simulation.history import Anomaly, History, Place, Sent
from tidemark.broker.peers import PeerUnavailable
from tidemark.environment import monotonic, wall_clock_ms
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidemark.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidemark.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidemark.protocol.records import Record, build_batch, iter_batches, iter_records
from tidemark.simulation.client import RETRY_SECONDS, TRANSACTION, KafkaClient

RETRIABLE: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}
FENCED: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,  # KIP-890: the transaction was ended meanwhile
}
PRODUCE_VERSIONS: Final = (3, 7, 9, 11)
FETCH_VERSIONS: Final = (4, 7, 11, 12)
EARLIEST: Final = -2
STALE_SECONDS_MAX: Final = 8.0


class Refusal(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


class Producer:
    """Idempotent, one batch under way per partition; it sends until it is told to stop."""

    def __init__(self, name: str, client: KafkaClient, history: History, random: Random, places: list[Place]) -> None:
        self.name = name
        self.client = client
        self.history = history
        self.random = random
        self.places = places
        self.stopping = False
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[Place, int] = {}
        self.numbers = itertools.count()
        self.version = random.choice(PRODUCE_VERSIONS)
        self.pause_seconds = random.choice((0.03, 0.1, 0.3, 2.0))

    async def run(self) -> None:
        await self.init()
        while not self.stopping:
            place = self.random.choice(self.places)
            await self.produce(place, self.new_records(place, None))
            await asyncio.sleep(self.random.random() * 2 * self.pause_seconds)

    def new_records(self, place: Place, transaction: int | None) -> list[bytes]:
        made = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            number = next(self.numbers)
            value = f"{self.name} {number}".encode()
            if self.random.random() < 0.05:
                value += b" " + b"x" * self.random.randrange(5_000)
            self.history.sent[value] = Sent(place=place, producer=self.name, number=number, transaction=transaction)
            made.append(value)
        return made

    async def init(self, transactional_id: str | None = None) -> None:
        while True:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=20_000)
            try:
                if transactional_id is None:
                    answer = await self.client.ask_any(request, InitProducerIdResponse, version=4)
                else:
                    answer = await self.ask_coordinator(transactional_id, request, InitProducerIdResponse, version=4)
            except PeerUnavailable:
                answer = InitProducerIdResponse(error_code=ErrorCode.NETWORK_EXCEPTION)
            if answer.error_code == ErrorCode.NONE:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
                return
            if answer.error_code not in RETRIABLE | FENCED:
                raise Anomaly(f"{self.name}: InitProducerId answers {ErrorCode(answer.error_code).name}")
            if transactional_id is not None:
                self.client.forget_coordinator(transactional_id, kind=TRANSACTION)
            await asyncio.sleep(RETRY_SECONDS)

    async def ask_coordinator(self, key: str, request: object, response: type, *, version: int):
        address = await self.client.coordinator_of(key, kind=TRANSACTION)
        try:
            return await self.client.ask(address, request, response, version=version)
        except PeerUnavailable:
            self.client.forget_coordinator(key, kind=TRANSACTION)
            raise

    async def produce(self, place: Place, values: list[bytes], transactional_id: str | None = None) -> None:
        """Until it is acknowledged; the same batch, with the same sequence, is sent again and again."""
        sequence = self.sequences.get(place, 0)
        now = wall_clock_ms()
        batch = build_batch(
            [self.record(value, now) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
        while True:
            code, base_offset = await self._try(place, batch, transactional_id)
            if code == ErrorCode.NONE:
                break
            if code in RETRIABLE:
                self.client.forget_leader(*place)
                await asyncio.sleep(RETRY_SECONDS * (0.5 + self.random.random()))
                continue
            raise Refusal(code)
        self.sequences[place] = sequence + len(values)
        self.history.acknowledged += len(values)
        self.history.last_ack[self.name] = monotonic()
        if base_offset >= 0:
            self.history.ends[place] = max(self.history.ends[place], base_offset + len(values))
            for at, value in enumerate(values):
                if (sent := self.history.sent.get(value)) is not None:
                    sent.offset = base_offset + at

    def record(self, value: bytes, now: int) -> Record:
        return Record(timestamp=now, value=value)

    async def _try(self, place: Place, batch: bytearray, transactional_id: str | None) -> tuple[int, int]:
        topic, partition = place
        data = PartitionProduceData(index=partition, records=bytes(batch))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=4000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        self.history.requests += 1
        try:
            address = await self.client.leader_of(topic, partition)
            answer = await self.client.ask(address, request, ProduceResponse, version=self.version)
        except PeerUnavailable:
            return ErrorCode.NETWORK_EXCEPTION, -1
        told = answer.responses[0].partition_responses[0]
        return told.error_code, told.base_offset


class SeldomProducer(Producer):
    """What it wrote is the last of its partition for a while."""

    def __init__(self, name: str, client: KafkaClient, history: History, random: Random, places: list[Place]) -> None:
        super().__init__(name, client, history, random, places)
        self.pause_seconds = random.choice((0.5, 1.5))


class TransactionalProducer(Producer):
    """Commits and aborts, over several partitions; after an error it begins anew with a new epoch."""

    async def run(self) -> None:
        await self.init(self.name)
        while not self.stopping:
            await self.transaction()
            await asyncio.sleep(self.random.random() * 4 * self.pause_seconds)

    async def transaction(self) -> None:
        number = self.history.new_transaction()
        ends_well = self.random.random() < 0.7
        try:
            for place in self.random.sample(self.places, self.random.randint(1, min(3, len(self.places)))):
                await self.add_partition(place)
                await self.produce(place, self.new_records(place, number), self.name)
            if not ends_well:
                self.history.decided[number] = "aborted"
            await self.end(number, commit=ends_well)
        except Refusal as refusal:
            if refusal.code not in FENCED:
                raise Anomaly(f"{self.name}: {refusal.code.name}") from None
            self.history.decided.setdefault(number, "aborted")
            await self.init(self.name)

    async def add_partition(self, place: Place) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )

        async def once() -> int:
            answer = await self.ask_coordinator(self.name, request, AddPartitionsToTxnResponse, version=3)
            code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return code

        await self._until_done(once)

    async def end(self, number: int, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )

        async def once() -> int:
            if commit:
                self.history.decided[number] = "unknown"  # from here on readers may see it
            answer = await self.ask_coordinator(self.name, request, EndTxnResponse, version=3)
            code: int = answer.error_code
            return code

        await self._until_done(once)
        if commit:
            self.history.decided[number] = "committed"

    async def _until_done(self, once: Callable[[], Awaitable[int]]) -> None:
        while True:
            self.history.requests += 1
            try:
                code = await once()
            except PeerUnavailable:
                code = ErrorCode.NETWORK_EXCEPTION
            if code == ErrorCode.NONE:
                return
            if code not in RETRIABLE:
                raise Refusal(code)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.client.forget_coordinator(self.name, kind=TRANSACTION)
            await asyncio.sleep(RETRY_SECONDS)


class Reader:
    """Follows one partition from its start. What it was shown once must stay."""

    def __init__(self, client: KafkaClient, history: History, place: Place, *, committed_only: bool) -> None:
        self.client = client
        self.history = history
        self.place = place
        self.committed_only = committed_only
        self.version = FETCH_VERSIONS[(len(place[0]) + place[1]) % len(FETCH_VERSIONS)]
        self.offset = 0
        self.stopping = False
        self.end_seen = -1
        self.out_of_range_since: float | None = None
        self.shown: Callable[[int, bytes], None] | None = None

    async def run(self) -> None:
        while not self.stopping:
            if not await self.poll():
                await asyncio.sleep(RETRY_SECONDS)

    async def poll(self) -> bool:
        topic, partition = self.place
        asked = FetchPartition(partition=partition, fetch_offset=self.offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            isolation_level=int(self.committed_only),
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        self.history.requests += 1
        try:
            address = await self.client.leader_of(topic, partition)
            answer = await self.client.ask(address, request, FetchResponse, version=self.version)
        except PeerUnavailable:
            self.client.forget_leader(topic, partition)
            return False
        if not answer.responses:
            return False  # as Kafka answers who has used up a quota
        told = answer.responses[0].partitions[0]
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.offset < self.history.may_be_deleted[self.place]:
            await self._reset()
            return False
        return self._take(told)

    async def _reset(self) -> None:
        """What it would read was deleted: on with what is left."""
        topic, partition = self.place
        asked = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        try:
            address = await self.client.leader_of(topic, partition)
            answer = await self.client.ask(address, request, ListOffsetsResponse, version=5)
        except PeerUnavailable:
            self.client.forget_leader(topic, partition)
            return
        told = answer.topics[0].partitions[0]
        if told.error_code == ErrorCode.NONE:
            self.offset = max(self.offset, told.offset)
        else:
            self.client.forget_leader(topic, partition)

    def _take(self, told: PartitionData) -> bool:
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_out_of_range()
            return False
        self.out_of_range_since = None
        if told.error_code != ErrorCode.NONE:
            if told.error_code not in RETRIABLE:
                raise Anomaly(f"{self.place}: a fetch answers {ErrorCode(told.error_code).name}")
            self.client.forget_leader(*self.place)
            return False
        end = told.last_stable_offset if self.committed_only else told.high_watermark
        self._read(told)
        self.end_seen = end
        return True

    def _check_out_of_range(self) -> None:
        """A leader that was replaced, and has not heard of it, may say so for a while."""
        self.client.forget_leader(*self.place)
        self.out_of_range_since = self.out_of_range_since or monotonic()
        if monotonic() - self.out_of_range_since > STALE_SECONDS_MAX:
            raise Anomaly(f"{self.place}: a reader at {self.offset} was told that there is no such offset")

    def _read(self, told: PartitionData) -> None:
        pending = sorted((each.first_offset, each.producer_id) for each in told.aborted_transactions or [])
        ignored: set[int] = set()
        data = told.records
        if not data:
            return
        assert isinstance(data, bytes | bytearray | memoryview)
        for header, batch in iter_batches(data, partial_tail=True):
            while pending and pending[0][0] <= header.last_offset:
                ignored.add(pending.pop(0)[1])
            if header.is_control:
                ignored.discard(header.producer_id)
            elif not (self.committed_only and header.is_transactional and header.producer_id in ignored):
                for record in iter_records(batch):
                    if record.offset >= self.offset:
                        value = bytes(record.value or b"")
                        self.history.saw(self.place, record.offset, value, committed_only=self.committed_only)
                        if self.shown is not None:
                            self.shown(record.offset, value)
            self.offset = max(self.offset, header.next_offset)
