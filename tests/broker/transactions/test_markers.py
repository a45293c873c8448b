"""Markers beside batches that wait: for their turn, for the disk, for an answer of the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

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


async def test_a_batch_whose_transaction_ended_while_the_coordinator_was_asked_is_refused(
    txn: Any, speak: Any, partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await txn.start("a")
    assert await txn.add("a", producer, 0) == [ErrorCode.NONE]
    asked: list[tuple[Any, Deferred[Any]]] = []
    real = TransactionCoordinator.add_partitions

    def answered_later(coordinator: Any, adding: Any) -> Deferred[Any]:
        late: Deferred[Any] = Deferred()
        asked.append((real(coordinator, adding), late))
        return late

    monkeypatch.setattr(TransactionCoordinator, "add_partitions", answered_later)
    client = await speak(txn.node)
    sending = asyncio.create_task(client.produce("a", producer, b"late", version=CLASSIC))
    await until(lambda: bool(asked))
    assert (await txn.end("a", producer, commit=False, version=4)).error_code == 0
    await txn.settled("a", "CompleteAbort")
    [(codes, late)] = asked
    assert set(codes.values()) <= {ErrorCode.NONE}, "the transaction was open when the coordinator was asked"
    late.resolve(codes)
    assert await sending == ErrorCode.INVALID_TXN_STATE
    assert await nothing_hangs(txn)
