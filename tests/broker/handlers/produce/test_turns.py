"""Batches whose records are read on a thread are appended in the order of arrival, whatever else happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.broker.core.registry import Call
from tidemark.broker.handlers.produce.appending import Appending, PlainAppends
from tidemark.broker.replication.examination import AT_ONCE_RECORDS_MAX
from tidemark.protocol.compression import ZSTD
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemark.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidemark.protocol.records import Record, build_batch, iter_batches, write_crc

MANY = AT_ONCE_RECORDS_MAX + 1
TOPIC = "strict"


class HeldExaminers:
    """Examines when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Any, Callable[[], None]]] = []

    def examine(self, examination: Any, *, client: object, done: Callable[[], None]) -> None:
        self.jobs.append((examination, done))

    def release(self, index: int = 0) -> None:
        examination, done = self.jobs.pop(index)
        examination.run(lambda: None)
        examination.is_done = True
        done()

    def stop(self) -> None:
        self.jobs.clear()


@pytest.fixture
async def strict(client: Any) -> Any:
    await client.create(TOPIC, 2, tidemark_produce_validation="strict")
    return client


@pytest.fixture
def held(node: Any, strict: Any) -> HeldExaminers:
    examiners = HeldExaminers()
    node._replicas.table.append_queues._examiners = examiners
    return examiners


def batch(count: int, *, sequence: int = -1, producer_id: int | None = None, **fields: Any) -> bytes:
    records = [Record(timestamp=1, value=b"v") for _ in range(count)]
    producer_id = producer_id if producer_id is not None else 7 if sequence >= 0 else -1
    epoch = 0 if producer_id >= 0 else -1
    return bytes(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields))


def spoiled(count: int) -> bytes:
    """With a last record that says it is longer than it is."""
    records = [Record(timestamp=1, value=b"v") for _ in range(count)]
    good = build_batch(records)
    good[-3] ^= 4  # the length of its value
    write_crc(good)
    return bytes(good)


def request(*batches: bytes, topic: str = TOPIC, acks: int = -1, transactional_id: str | None = None) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(batches)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=topics)


async def answer(client: Any) -> list[tuple[int, int]]:
    response = await asyncio.wait_for(client.receive(ProduceResponse, 12), 20)
    return [(each.error_code, each.base_offset) for each in response.responses[0].partition_responses]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def turns() -> None:
    """The loop has gone round so often that everything which can go on has gone on."""
    for _ in range(100):
        await asyncio.sleep(0)


def led(node: Any, index: int = 0) -> Any:
    return node._replicas.table.topics[TOPIC].partitions[index]


async def test_later_batches_wait_for_their_turn(node: Any, strict: Any, connect: Any, held: HeldExaminers) -> None:
    other, third = await connect(node), await connect(node)
    for sequence, count in ((0, MANY), (MANY, 2), (MANY + 2, MANY)):
        strict.send(request(batch(count, sequence=sequence)), 12)
    await until(lambda: len(held.jobs) == 2)
    other.send(request(batch(3)), 12)  # by the fast path, if it could
    assert (await third.produce(TOPIC, b"x", partition=1)).error_code == 0, "another partition is not held up"
    held.release(1)
    assert (await third.produce(TOPIC, b"x", partition=1)).error_code == 0, "the loop has gone on"
    assert led(node).log.end_offset == 0
    held.release()
    answers = [(await answer(strict))[0] for _ in range(3)]
    assert answers == [(0, 0), (0, MANY), (0, MANY + 2)]
    assert (await answer(other)) == [(0, 2 * MANY + 2)]
    assert led(node).append_queue is None
    assert (await other.produce(TOPIC, b"x")).base_offset == 2 * MANY + 5


async def test_a_refused_batch_lets_the_next_one_on(node: Any, strict: Any, held: HeldExaminers) -> None:
    strict.send(request(spoiled(MANY)), 12)
    strict.send(request(batch(1)), 12)
    await until(lambda: len(held.jobs) == 1)
    held.release()
    assert [await answer(strict), await answer(strict)] == [[(ErrorCode.INVALID_RECORD, -1)], [(0, 0)]]


async def test_only_the_partition_that_must_wait_does(node: Any, strict: Any, held: HeldExaminers) -> None:
    strict.send(request(batch(MANY), batch(1)), 12)
    await until(lambda: len(held.jobs) == 1)
    assert led(node, 1).log.end_offset == 1
    held.release()
    assert await answer(strict) == [(0, 0), (0, 0)]


async def test_the_records_of_one_request_are_counted_together(node: Any, strict: Any, held: HeldExaminers) -> None:
    strict.send(request(batch(AT_ONCE_RECORDS_MAX), batch(1)), 12)
    await until(lambda: len(held.jobs) == 1)
    assert [led(node, index).log.end_offset for index in (0, 1)] == [AT_ONCE_RECORDS_MAX, 0]
    held.release()
    assert await answer(strict) == [(0, 0), (0, 0)]


async def test_acks_0_is_appended_in_its_turn_and_not_answered(node: Any, strict: Any, held: HeldExaminers) -> None:
    strict.send(request(batch(MANY), acks=0), 12)
    strict.send(request(batch(1)), 12)
    await until(lambda: len(held.jobs) == 1)
    held.release()
    assert await answer(strict) == [(0, MANY)]


async def test_acks_0_with_an_error_closes_the_connection(node: Any, strict: Any, held: HeldExaminers) -> None:
    strict.send(request(spoiled(MANY), acks=0), 12)
    await until(lambda: len(held.jobs) == 1)
    held.release()
    assert await strict.closed_by_peer()


async def test_a_leadership_that_ends_takes_nothing_more(node: Any, strict: Any, held: HeldExaminers) -> None:
    strict.send(request(batch(MANY)), 12)
    await until(lambda: len(held.jobs) == 1)
    partition = node._replicas.table.topics[TOPIC].partitions.pop(0)
    held.release()
    assert await answer(strict) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert partition.log.end_offset == 0
    node._replicas.table.topics[TOPIC].partitions[0] = partition


async def test_the_next_leadership_does_not_inherit_what_waited(node: Any, strict: Any, held: HeldExaminers) -> None:
    strict.send(request(batch(MANY)), 12)
    await until(lambda: len(held.jobs) == 1)
    partitions = node._replicas.table.topics[TOPIC].partitions
    partitions[0], partitions[1] = partitions[1], partitions[0]
    held.release()
    assert await answer(strict) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert [each.log.end_offset for each in partitions.values()] == [0, 0]
    partitions[0], partitions[1] = partitions[1], partitions[0]


async def test_what_waits_is_refused_when_a_leadership_ends_but_not_while_it_is_read(
    node: Any, strict: Any, connect: Any, held: HeldExaminers
) -> None:
    other = await connect(node)
    strict.send(request(batch(MANY)), 12)
    await until(lambda: len(held.jobs) == 1)
    other.send(request(batch(1)), 12)
    await until(lambda: len(led(node).append_queue) == 2)
    partition, hosted = led(node), node._replicas.table.topics[TOPIC]
    node._replicas.roles._retire(hosted, 0, None)
    node._replicas.roles.assign(hosted, 0)
    assert await answer(other) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert node._server.memory.used_bytes > 0, "a thread has the other"
    held.release()
    assert await answer(strict) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert node._server.memory.used_bytes == 0
    assert partition.append_queue is None
    assert partition.log.end_offset == 0


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_is_sent_to_the_next_leadership_does_not_overtake_what_waited_in_the_last(
    node: Any, strict: Any, connect: Any, held: HeldExaminers, is_known: bool
) -> None:
    """Number 1 in the log would be too late for number 0, and the producer could not go on."""
    other = await connect(node)
    first = 0
    if is_known:
        other.send(request(batch(1, sequence=0)), 12)
        assert await answer(other) == [(0, 0)]
        first = 1
    strict.send(request(batch(MANY, sequence=first)), 12)
    await until(lambda: len(held.jobs) == 1)
    hosted = node._replicas.table.topics[TOPIC]
    node._replicas.roles._retire(hosted, 0, None)
    node._replicas.roles.assign(hosted, 0)
    other.send(request(batch(1, sequence=first + MANY)), 12)
    assert await answer(other) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    held.release()
    assert await answer(strict) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    strict.send(request(batch(MANY, sequence=first)), 12)
    await until(lambda: len(held.jobs) == 1)
    held.release()
    assert await answer(strict) == [(0, first)]
    other.send(request(batch(1, sequence=first + MANY)), 12)
    assert await answer(other) == [(0, first + MANY)]


async def test_a_topic_that_is_deleted_meanwhile_is_unknown(
    node: Any, strict: Any, connect: Any, held: HeldExaminers
) -> None:
    other = await connect(node)
    strict.send(request(batch(MANY)), 12)
    await until(lambda: len(held.jobs) == 1)
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000)
    assert (await other.call(deleted, DeleteTopicsResponse, 6)).responses[0].error_code == 0
    held.release()
    assert await answer(strict) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def test_what_a_client_sent_before_it_went_is_appended(node: Any, strict: Any, held: HeldExaminers) -> None:
    strict.send(request(batch(MANY)), 12)
    await until(lambda: len(held.jobs) == 1)
    await strict.close()
    await until(lambda: node._server.connection_count == 0)
    assert node._server.memory.used_bytes > 0
    held.release()
    await until(lambda: led(node).log.end_offset == MANY)
    assert node._server.memory.used_bytes == 0


async def test_a_turn_may_come_while_the_rest_of_a_large_request_is_appended(
    node: Any, strict: Any, held: HeldExaminers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidemark.broker.handlers.produce.appending.PARTITIONS_PER_STEP", 1)
    counted: list[int] = []
    connection = SimpleNamespace(count_waiting=counted.append, release_waiting=counted.remove)
    asked = request(*(memoryview(bytearray(batch(count))) for count in (MANY, 1)))  # type: ignore[arg-type]
    replicas = node._replicas.table
    job = Appending(asked, Call(connection, 12, None), replicas, PlainAppends).run_in_slices()
    next(job)
    assert len(counted) == 1
    held.release()
    await until(lambda: led(node).log.end_offset == MANY)
    while True:
        try:
            next(job)
        except StopIteration as end:
            response = end.value
            break
    assert [each.error_code for each in response.responses[0].partition_responses] == [0, 0]
    assert counted == []
    assert not caplog.records


async def test_a_request_that_waits_counts_as_memory(
    start_node: Any, connect: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node(tmp_path / "small", queued_max_request_bytes=1)
    client = await connect(node)
    await client.create(TOPIC, 1, tidemark_produce_validation="strict")
    held = HeldExaminers()
    node._replicas.table.append_queues._examiners = held
    for _ in range(8):
        client.send(request(batch(MANY)), 12)
    await client.writer.drain()
    await until(lambda: len(held.jobs) >= 1)
    await turns()
    assert len(held.jobs) <= 2, "one that exceeds the limit may go on, no more"
    for index in range(8):
        await until(lambda: bool(held.jobs))
        held.release()
        assert await answer(client) == [(0, index * MANY)]
    assert node._server.memory.used_bytes == 0


async def test_a_node_that_stops_leaves_nothing_half_done(
    start_node: Any, connect: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.broker.server.server.DRAIN_SECONDS_MAX", 0.1)
    node = await start_node(tmp_path / "stopping")
    client = await connect(node)
    await client.create(TOPIC, 1, tidemark_produce_validation="strict")
    held = HeldExaminers()
    node._replicas.table.append_queues._examiners = held
    client.send(request(batch(MANY)), 12)
    await until(lambda: len(held.jobs) == 1)
    kept = list(held.jobs)
    partition = led(node)
    await node.stop()
    held.jobs = kept
    held.release()
    await turns()
    assert partition.log.end_offset == 0


async def test_a_transaction_begins_with_a_batch_that_waits(node: Any, strict: Any, held: HeldExaminers) -> None:
    await strict.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), FindCoordinatorResponse, 4)
    asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    async with asyncio.timeout(20):
        while (made := await strict.call(asked, InitProducerIdResponse, 5)).error_code:
            await asyncio.sleep(0.01)
    for sequence, count in ((0, MANY), (MANY, 1)):
        records = [Record(timestamp=1, value=b"v")] * count
        data = build_batch(
            records, producer_id=made.producer_id, producer_epoch=made.producer_epoch, base_sequence=sequence,
            transactional=True,
        )  # fmt: skip
        strict.send(request(bytes(data), transactional_id="t"), 12)
    await until(lambda: len(led(node).append_queue or ()) == 2)
    held.release()
    assert [await answer(strict), await answer(strict)] == [[(0, 0)], [(0, MANY)]]


@pytest.mark.parametrize("seed", range(3))
async def test_five_requests_in_flight_keep_their_order(node: Any, strict: Any, connect: Any, seed: int) -> None:
    """With the real threads: producers by sequence, others between them."""
    random = Random(seed)
    others = [await connect(node) for _ in range(2)]

    async def produce(client: Any, producer_id: int) -> None:
        sequence, sent, expected = 0, 0, []
        for _ in range(25):
            count = random.choice((1, 3, MANY, 2 * MANY))
            compression = random.choice((0, ZSTD))
            data = batch(count, sequence=sequence, producer_id=producer_id, compression=compression)
            client.send(request(data), 12)
            expected.append(count)
            sequence += count
            sent += 1
            if sent - len(got[producer_id]) >= 5:
                got[producer_id].append((await answer(client))[0])
        while len(got[producer_id]) < sent:
            got[producer_id].append((await answer(client))[0])

    got: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    await asyncio.gather(*(produce(client, index) for index, client in enumerate([strict, *others], start=1)))
    for answers in got.values():
        assert all(code == 0 for code, _ in answers)
        assert answers == sorted(answers, key=lambda each: each[1])
    stored = b"".join(path.read_bytes() for path in sorted(Path(led(node).log.directory).glob("*.log")))
    sequences: dict[int, int] = {}
    for header, _ in iter_batches(stored):
        assert header.base_sequence == sequences.get(header.producer_id, 0)
        sequences[header.producer_id] = header.base_sequence + header.record_count
