"""Markers beside batches that wait: for their turn, for the disk, for an answer of the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidemark.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidemark.protocol.records import Record, build_batch

CLASSIC = 11  # the last version of Produce whose transactions keep their epoch


class HeldWriters:
    """A disk that is slow, until it is told to go on."""

    at_once_bytes_max = 0

    def __init__(self) -> None:
        self.pending: list[tuple[Any, Callable[[], None]]] = []

    def write(self, pending: Any, done: Callable[[], None]) -> None:
        self.pending.append((pending, done))

    def note(self, seconds: float) -> None:
        pass

    def release(self) -> None:
        pending, done = self.pending.pop(0)
        pending()
        done()


@pytest.fixture
def partition(txn: Any) -> Any:
    return txn.node._replicas.table.topics["t"].partitions[0]


@pytest.fixture
def disk(partition: Any) -> HeldWriters:
    writers = partition.writers = HeldWriters()
    return writers


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def nothing_hangs(txn: Any) -> bool:
    return bool(await txn.end_offset() == await txn.end_offset(isolation=0))


async def test_a_marker_comes_after_the_batches_of_its_transaction_that_wait(
    txn: Any, speak: Any, partition: Any, disk: HeldWriters
) -> None:
    """As librdkafka aborts: with requests under way."""
    producer = await txn.start("a")
    assert await txn.add("a", producer, 0) == [ErrorCode.NONE]
    sending = []
    for sequence in range(2):
        client = await speak(txn.node)
        produced = client.produce("a", producer, b"%d" % sequence, sequence=sequence, version=CLASSIC)
        sending.append(asyncio.create_task(produced))
        await until(lambda: len(partition.append_queue or ()) == len(sending))
    assert (await txn.end("a", producer, commit=False, version=4)).error_code == 0
    await until(lambda: len(partition.append_queue) == 3)
    for _ in range(2):
        await until(lambda: bool(disk.pending))
        disk.release()
    assert [await each for each in sending] == [ErrorCode.NONE] * 2
    await txn.settled("a", "CompleteAbort")
    assert await txn.read() == []
    assert await nothing_hangs(txn)


async def test_a_marker_that_was_repeated_does_not_end_the_next_transaction(
    txn: Any, speak: Any, partition: Any, disk: HeldWriters
) -> None:
    first = await txn.start("a")
    partition.writers.at_once_bytes_max = 1 << 20
    await txn.produce("a", first, b"1")
    second = await txn.commit("a", first)
    await txn.settled("a", "CompleteCommit")
    partition.writers.at_once_bytes_max = 0
    client = await speak(txn.node)
    sending = asyncio.create_task(client.produce("a", second, b"2"))
    await until(lambda: bool(disk.pending))
    repeated = WritableTxnMarker(
        producer_id=second[0], producer_epoch=second[1], transaction_result=True, coordinator_epoch=0,
        transaction_version=2, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )  # fmt: skip
    marking = asyncio.create_task(
        txn.client.call(WriteTxnMarkersRequest(markers=[repeated]), WriteTxnMarkersResponse, 2)
    )
    await until(lambda: len(partition.append_queue) == 2)
    disk.release()
    assert await sending == ErrorCode.NONE
    assert (await marking).markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.has_open_transaction(*second)


async def test_a_marker_that_waits_when_a_leadership_ends_is_written_in_the_next(
    txn: Any, speak: Any, partition: Any, disk: HeldWriters
) -> None:
    """As soon as that begins: which is when the batch is written, and a batch whose answer says no may be in the
    transaction all the same."""
    producer = await txn.start("a")
    assert await txn.add("a", producer, 0) == [ErrorCode.NONE]
    client = await speak(txn.node)
    sending = asyncio.create_task(client.produce("a", producer, b"x", version=CLASSIC))
    await until(lambda: bool(disk.pending))
    assert (await txn.end("a", producer, commit=False, version=4)).error_code == 0
    await until(lambda: len(partition.append_queue) == 2)
    roles, hosted = txn.node._replicas.roles, txn.node._replicas.table.topics["t"]
    roles._retire(hosted, 0, None)
    roles.assign(hosted, 0)
    assert len(partition.append_queue) == 1, "the marker waits no longer"
    disk.release()
    assert await sending == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await txn.settled("a", "CompleteAbort")
    assert await txn.read() == []
    assert await nothing_hangs(txn)


class SlowCoordinator:
    """Decides at once, and is heard of when it is told to."""

    def __init__(self) -> None:
        self.decided: list[tuple[Any, Deferred[Any]]] = []

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = TransactionCoordinator.add_partitions

        def answered_later(coordinator: Any, adding: Any) -> Deferred[Any]:
            late: Deferred[Any] = Deferred()
            self.decided.append((real(coordinator, adding), late))
            return late

        monkeypatch.setattr(TransactionCoordinator, "add_partitions", answered_later)

    def answer(self) -> None:
        [(codes, late)] = self.decided
        assert set(codes.values()) <= {ErrorCode.NONE}, "the transaction was open when the coordinator was asked"
        late.resolve(codes)


async def test_a_batch_whose_transaction_ended_while_the_coordinator_was_asked_is_refused(
    txn: Any, speak: Any, partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await txn.start("a")
    assert await txn.add("a", producer, 0) == [ErrorCode.NONE]
    slow = SlowCoordinator()
    slow.patch(monkeypatch)
    client = await speak(txn.node)
    sending = asyncio.create_task(client.produce("a", producer, b"late", version=CLASSIC))
    await until(lambda: bool(slow.decided))
    assert (await txn.end("a", producer, commit=False, version=4)).error_code == 0
    await txn.settled("a", "CompleteAbort")
    slow.answer()
    assert await sending == ErrorCode.INVALID_TXN_STATE
    assert await nothing_hangs(txn)


async def test_a_late_batch_of_a_producer_that_is_forgotten_already_is_not_accepted_for_its_old_epoch(
    txn: Any, speak: Any, partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when thousands of producers have written since its transaction was aborted."""
    producer, client, slow = await txn.start("a"), await speak(txn.node), SlowCoordinator()
    with monkeypatch.context() as moment:
        slow.patch(moment)
        sending = asyncio.create_task(client.produce("a", producer, b"late"))
        await until(lambda: bool(slow.decided))
        await txn.abort("a", producer)
        await txn.settled("a", "CompleteAbort")
        partition.log.producer_states.expire(now_ms=1 << 60, idle_ms=1)
        assert partition.log.producer(producer[0]) is None
        slow.answer()
        assert await sending == ErrorCode.NOT_ENOUGH_REPLICAS, "which a producer tries again"
    assert await client.produce("a", producer, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await nothing_hangs(txn)


async def test_a_partition_that_is_led_here_only_now_is_not_written_to_before_it_is_part_of_the_transaction(
    txn: Any, speak: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, client, slow = await txn.start("a"), await speak(txn.node), SlowCoordinator()
    batch = bytes(
        build_batch(
            [Record(value=b"x")],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            transactional=True,
        )
    )
    data = [PartitionProduceData(index=index, records=batch) for index in (0, 1)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    request = ProduceRequest(transactional_id="a", acks=-1, timeout_ms=10_000, topic_data=topics)
    slow.patch(monkeypatch)
    hosted, roles = txn.node._replicas.table.topics["t"], txn.node._replicas.roles
    roles._retire(hosted, 1, None)
    sending = asyncio.create_task(client.client.call(request, ProduceResponse, 12))
    await until(lambda: bool(slow.decided))
    roles.assign(hosted, 1)
    slow.answer()
    answer = await sending
    told = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert told == {0: ErrorCode.NONE, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert [each.partitions for each in (await txn.describe("a")).topics] == [[0]]


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_offsets_whose_transaction_ended_while_the_coordinator_was_asked_are_not_of_one_that_never_ends(
    txn: Any, speak: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    producer, client, slow = await txn.start("a"), await speak(txn.node), SlowCoordinator()
    assert await txn.add_offsets("a", producer) == ErrorCode.NONE
    [hosted] = [each for each in txn.node._coordinators.groups if each is txn.node._coordinators.groups.find("g")]
    with monkeypatch.context() as moment:
        slow.patch(moment)
        sending = asyncio.create_task(client.commit_offset("a", producer, 7, version=version))
        await until(lambda: bool(slow.decided))
        assert (await txn.end("a", producer, commit=False, version=version)).error_code == 0
        await txn.settled("a", "CompleteAbort")
        hosted.partition.log.producer_states.expire(now_ms=1 << 60, idle_ms=1)
        slow.answer()
        assert await sending == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "which a producer tries again"
    assert await client.commit_offset("a", producer, 7, version=version) in (
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    assert await txn.committed(stable=True) == (-1, ErrorCode.NONE)
