"""A disk that is slow to take a batch: other partitions go on, and the batch's own keeps its order."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemark.broker.replication.writers import AT_ONCE_BYTES_MAX_IF_SLOW, SLOW_SECONDS
from tidemark.files import Files
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidemark.protocol.records import Record, build_batch, iter_batches
from tidemark.storage.segment import Segment

TOPIC = "slow"
LARGE = b"v" * (2 * AT_ONCE_BYTES_MAX_IF_SLOW)


class HeldDisk:
    """Writes of large batches do not end before they are told to, or fail."""

    def __init__(self) -> None:
        self.begun = 0
        self.error: OSError | None = None
        self._released = threading.Semaphore(0)

    def release(self, count: int = 1) -> None:
        self._released.release(count)

    def put(self, segment: Any, fd: int, data: Any, *, position: int) -> None:
        self.begun += 1
        assert self._released.acquire(timeout=60)
        files = _Failing(self.error) if self.error is not None else segment.files
        Segment_put(_with_files(segment, files), fd, data, position=position)


class _Failing(Files):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def write_all(self, fd: int, data: Any) -> None:
        super().write_all(fd, memoryview(data)[:100])
        raise self._error


def _with_files(segment: Any, files: Files) -> Any:
    copy = segment.copy()
    copy.files = files
    return copy


Segment_put = Segment.put


@pytest.fixture
async def slow(node: Any, client: Any) -> Any:
    await client.create(TOPIC, 2)
    writers_of(node).note(SLOW_SECONDS)
    return client


@pytest.fixture
def disk(slow: Any, monkeypatch: pytest.MonkeyPatch) -> HeldDisk:
    held = HeldDisk()
    monkeypatch.setattr(Segment, "put", lambda segment, *args, **named: held.put(segment, *args, **named))
    return held


def led(node: Any, index: int = 0) -> Any:
    return node._replicas.table.topics[TOPIC].partitions[index]


def writers_of(node: Any) -> Any:
    return led(node).writers


def batch(value: bytes = LARGE, *, sequence: int = -1, producer_id: int = -1) -> bytes:
    records = [Record(timestamp=1, value=value)]
    epoch = 0 if producer_id >= 0 else -1
    return bytes(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def request(*batches: bytes, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(batches)]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=topics)


async def answer(client: Any) -> tuple[int, int]:
    response = await asyncio.wait_for(client.receive(ProduceResponse, 12), 30)
    (result,) = response.responses[0].partition_responses
    return result.error_code, result.base_offset


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_write_that_hangs_holds_up_its_own_partition_only(
    node: Any, slow: Any, connect: Any, disk: HeldDisk
) -> None:
    other = await connect(node)
    for value in (LARGE, b"small", LARGE):
        slow.send(request(batch(value)), 12)
    await until(lambda: disk.begun == 1)
    assert (await other.produce(TOPIC, b"x", partition=1)).error_code == 0
    fetched = await other.fetch(TOPIC, 0)
    assert (fetched.error_code, fetched.high_watermark, bytes(fetched.records or b"")) == (0, 0, b"")
    assert led(node).log.end_offset == 0
    disk.release()
    assert [await answer(slow), await answer(slow)] == [(0, 0), (0, 1)]
    await until(lambda: disk.begun == 2)
    disk.release()
    assert await answer(slow) == (0, 2)
    assert led(node).append_queue is None
    assert (await other.fetch(TOPIC, 0)).high_watermark == 3


async def test_small_batches_are_written_at_once_on_a_slow_disk(slow: Any, disk: HeldDisk) -> None:
    assert (await slow.produce(TOPIC, b"x")).error_code == 0
    assert disk.begun == 0


async def test_a_disk_that_was_quick_for_a_while_needs_no_threads(node: Any, slow: Any, disk: HeldDisk) -> None:
    writers_of(node)._slow_until = 1e-9
    writers_of(node).note(0.0)
    assert (await slow.produce(TOPIC, LARGE)).error_code == 0
    assert disk.begun == 0


async def test_a_write_that_finds_the_disk_full_is_answered_as_any_other(node: Any, slow: Any, disk: HeldDisk) -> None:
    disk.release()
    for sequence in range(3):
        slow.send(request(batch(sequence=sequence, producer_id=7)), 12)
    assert await answer(slow) == (0, 0)
    await until(lambda: disk.begun == 2)
    disk.error = OSError(errno.ENOSPC, "the disk is full")
    disk.release()
    assert await answer(slow) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert (await answer(slow))[0] == ErrorCode.KAFKA_STORAGE_ERROR, "its sequence number does not follow: tell why"
    assert led(node).log.end_offset == 1
    disk.error = None
    disk.release(2)
    for sequence in (1, 2):
        slow.send(request(batch(sequence=sequence, producer_id=7)), 12)
    assert [await answer(slow), await answer(slow)] == [(0, 1), (0, 2)]


async def test_a_disk_that_breaks_under_a_thread_takes_its_directory_offline(
    node: Any, slow: Any, disk: HeldDisk
) -> None:
    slow.send(request(batch()), 12)
    await until(lambda: disk.begun == 1)
    disk.error = OSError(errno.EIO, "the disk is broken")
    disk.release()
    assert (await answer(slow))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    await until(lambda: 0 not in node._replicas.table.topics[TOPIC].partitions)


async def test_acks_0_is_written_in_its_turn(node: Any, slow: Any, disk: HeldDisk) -> None:
    slow.send(request(batch(), acks=0), 12)
    slow.send(request(batch(b"x")), 12)
    await until(lambda: disk.begun == 1)
    disk.release()
    assert await answer(slow) == (0, 1)


async def test_a_leadership_that_ends_meanwhile_acknowledges_nothing(node: Any, slow: Any, disk: HeldDisk) -> None:
    slow.send(request(batch()), 12)
    await until(lambda: disk.begun == 1)
    partition = node._replicas.table.topics[TOPIC].partitions.pop(0)
    disk.release()
    assert await answer(slow) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert partition.log.end_offset == 1, "it was begun by a leader: the log has it, as if its answer had been lost"
    node._replicas.table.topics[TOPIC].partitions[0] = partition


async def test_a_lease_that_runs_out_meanwhile_acknowledges_nothing(node: Any, slow: Any, disk: HeldDisk) -> None:
    slow.send(request(batch()), 12)
    await until(lambda: disk.begun == 1)
    node._replicas.table.lease_until = 0.0
    disk.release()
    assert await answer(slow) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    node._replicas.table.lease_until = None


def resign(node: Any) -> Any:
    """The leadership ends; the next one begins as soon as that can be. Returns the old one."""
    roles, hosted = node._replicas.roles, node._replicas.table.topics[TOPIC]
    partition = led(node)
    roles._retire(hosted, 0, None)
    roles.assign(hosted, 0)
    return partition


async def test_what_waits_behind_a_write_that_hangs_is_refused_when_the_leadership_ends(
    node: Any, slow: Any, connect: Any, disk: HeldDisk
) -> None:
    """Its client finds the next leader sooner than the disk comes back, if it does."""
    other = await connect(node)
    slow.send(request(batch()), 12)
    await until(lambda: disk.begun == 1)
    for client in (slow, other):
        client.send(request(batch(b"x")), 12)
    await until(lambda: len(led(node).append_queue) == 3)
    before = node._server.memory.used_bytes
    partition = resign(node)
    assert await answer(other) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert 0 < node._server.memory.used_bytes < before, "what is being written is in memory yet"
    assert (await other.produce(TOPIC, b"x", partition=1)).error_code == 0
    disk.release()
    assert [await answer(slow), await answer(slow)] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 2
    assert node._server.memory.used_bytes == 0
    assert partition.append_queue is None
    assert disk.begun == 1


async def test_a_producer_goes_on_where_the_next_leadership_found_its_batch(
    node: Any, slow: Any, connect: Any, disk: HeldDisk
) -> None:
    """What comes before, and does not follow on what is in the log, is not told that it skips a number."""
    other = await connect(node)
    slow.send(request(batch(sequence=0, producer_id=7)), 12)
    await until(lambda: disk.begun == 1)
    other.send(request(batch(b"1", sequence=1, producer_id=7)), 12)
    await until(lambda: len(led(node).append_queue) == 2)
    resign(node)
    assert await answer(other) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert 0 not in node._replicas.table.topics[TOPIC].partitions, "it waits for the batch"
    disk.release()
    assert await answer(slow) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    await until(lambda: 0 in node._replicas.table.topics[TOPIC].partitions)
    other.send(request(batch(b"2", sequence=2, producer_id=7)), 12)
    assert await answer(other) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    for sequence in range(3):
        other.send(request(batch(b"%d" % sequence, sequence=sequence, producer_id=7)), 12)
    assert [await answer(other) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]


async def test_the_next_leadership_begins_after_what_was_being_written(node: Any, slow: Any, disk: HeldDisk) -> None:
    slow.send(request(batch()), 12)
    await until(lambda: disk.begun == 1)
    threading.Timer(0.05, disk.release).start()
    log = led(node).log
    log.start_epoch(9)
    assert log.end_offset == 1
    assert log.epoch_end_offset(8) == (0, 1)
    assert await answer(slow) == (0, 0)


async def test_a_topic_that_is_deleted_meanwhile_is_unknown(node: Any, slow: Any, connect: Any, disk: HeldDisk) -> None:
    other = await connect(node)
    slow.send(request(batch()), 12)
    await until(lambda: disk.begun == 1)
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000)
    assert (await other.call(deleted, DeleteTopicsResponse, 6)).responses[0].error_code == 0
    disk.release()
    assert (await answer(slow))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_what_is_being_written_at_a_stop_is_in_the_log_that_is_closed(
    start_node: Any, connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.broker.server.server.DRAIN_SECONDS_MAX", 0.1)
    node = await start_node(tmp_path / "stopping")
    client = await connect(node)
    await client.create(TOPIC, 1)
    writers_of(node).note(SLOW_SECONDS)
    held = HeldDisk()
    monkeypatch.setattr(Segment, "put", lambda segment, *args, **named: held.put(segment, *args, **named))
    client.send(request(batch()), 12)
    await until(lambda: held.begun == 1)
    threading.Timer(0.3, held.release).start()
    await node.stop()
    again = await start_node(tmp_path / "stopping")
    assert led(again).log.end_offset == 1


@pytest.mark.parametrize("seed", range(3))
async def test_threads_keep_the_order_of_every_producer(node: Any, slow: Any, connect: Any, seed: int) -> None:
    """With the real threads: idempotent producers with five requests in flight, of large and small batches."""
    random = Random(seed)
    clients = [slow, *[await connect(node) for _ in range(2)]]

    async def produce(client: Any, producer_id: int) -> None:
        for sequence in range(40):
            value = random.choice((b"x", LARGE, LARGE * 4))
            client.send(request(batch(value, sequence=sequence, producer_id=producer_id)), 12)
            if sequence >= 5:
                answers[producer_id].append(await answer(client))
        answers[producer_id] += [await answer(client) for _ in range(5)]

    answers: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    await asyncio.gather(*(produce(client, number) for number, client in enumerate(clients, start=1)))
    offsets = sorted(offset for each in answers.values() for _, offset in each)
    assert offsets == list(range(120)), "dense, and none given twice"
    stored = b"".join(path.read_bytes() for path in sorted(Path(led(node).log.directory).glob("*.log")))
    sequences: dict[int, int] = {}
    for header, _ in iter_batches(stored):
        assert header.base_sequence == sequences.get(header.producer_id, 0)
        assert answers[header.producer_id][header.base_sequence] == (0, header.base_offset)
        sequences[header.producer_id] = header.base_sequence + 1
