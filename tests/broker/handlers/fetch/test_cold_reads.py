"""A reader of what is not in the page cache waits for the disk; nobody else does."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tidemark import portable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidemark.protocol.records import iter_batches

VERSION = 12
LARGE = bytes(100_000)  # sent with sendfile
SMALL = bytes(1_000)  # read into the answer


class HungDisk:
    """A disk that answers only after `spin`, under a page cache that holds nothing of what is on it but what was
    loaded. To read the rest on the event loop is an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop_thread = threading.get_ident()
        self.asked = threading.Event()
        self.threads: set[int] = set()
        self._spins = threading.Event()
        self._loaded: set[int] = set()
        self._real_send, self._real_read = portable.send_file, portable.read_cached_into
        monkeypatch.setattr(portable, "is_cached", lambda _fd, *, position, **_: position in self._loaded)
        monkeypatch.setattr(portable, "load_pages", self._load)
        monkeypatch.setattr(portable, "send_file", self._send)
        monkeypatch.setattr(portable, "read_cached_into", self._read)

    def _load(self, _fd: int, *, position: int, length: int) -> None:
        self.threads.add(threading.get_ident())
        self.asked.set()
        assert self._spins.wait(30)
        self._loaded.add(position)

    def _read(self, fd: int, buffer: Any, position: int) -> int:
        if position not in self._loaded:
            raise BlockingIOError
        return self._real_read(fd, buffer, position)

    def _send(self, out_fd: int, in_fd: int, offset: int, count: int) -> int:
        assert self._spins.is_set(), "the event loop waits for the disk"
        return self._real_send(out_fd, in_fd, offset, count)

    async def is_asked(self) -> None:
        async with asyncio.timeout(10):
            while not self.asked.is_set():
                await asyncio.sleep(0.001)

    def spin(self) -> None:
        self._spins.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HungDisk]:
    made = HungDisk(monkeypatch)
    yield made
    made.spin()


def fetch_one(topic: str, offset: int = 0) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])


def records_of(answer: FetchResponse) -> int:
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == 0
    assert isinstance(partition.records, memoryview)
    return sum(header.last_offset_delta + 1 for header, _ in iter_batches(partition.records))


@pytest.mark.parametrize("value", [SMALL, LARGE])
async def test_others_are_served_while_the_disk_seeks(
    start_node: Any, connect: Any, disk: HungDisk, value: bytes
) -> None:
    node = await start_node()
    reader, other = await connect(node), await connect(node)
    await reader.create("t")
    await reader.produce("t", value, value)
    reader.send(fetch_one("t"), VERSION)
    await disk.is_asked()
    for _ in range(3):
        await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        await other.produce("t", value)
    disk.spin()
    answer = await asyncio.wait_for(reader.receive(FetchResponse, VERSION), 10)
    assert records_of(answer) == 2
    assert disk.loop_thread not in disk.threads


async def test_answers_keep_their_order_behind_a_cold_one(start_node: Any, connect: Any, disk: HungDisk) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    await client.produce("t", LARGE)
    first = client.send(fetch_one("t"), VERSION)
    second = client.send(ApiVersionsRequest(), 0)
    third = client.send(fetch_one("t"), VERSION)
    await disk.is_asked()
    disk.spin()
    async with asyncio.timeout(10):
        assert records_of(await client.receive(FetchResponse, VERSION)) == 1
        assert client.answered == first
        await client.receive(ApiVersionsResponse, 0)
        assert client.answered == second
        assert records_of(await client.receive(FetchResponse, VERSION)) == 1
        assert client.answered == third


@pytest.mark.parametrize("by_us", [False, True])
async def test_a_connection_that_ends_meanwhile_harms_no_other(
    start_node: Any, connect: Any, disk: HungDisk, caplog: pytest.LogCaptureFixture, by_us: bool
) -> None:
    node = await start_node()
    other, reader = await connect(node), await connect(node)
    await other.create("t")
    await other.produce("t", LARGE)
    reader.send(fetch_one("t"), VERSION)
    await disk.is_asked()
    if by_us:
        (connection,) = [each for each in node._server._connections if each._writer.parts]
        connection.transport.abort()
    else:
        reader.writer.transport.abort()
    await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    disk.spin()
    async with asyncio.timeout(10):
        while node._server.connection_count > 1:
            await asyncio.sleep(0.001)
    assert records_of(await other.call(fetch_one("t"), FetchResponse, VERSION)) == 1
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_a_topic_that_is_deleted_meanwhile_is_still_sent(start_node: Any, connect: Any, disk: HungDisk) -> None:
    node = await start_node()
    reader, other = await connect(node), await connect(node)
    await reader.create("t")
    await reader.produce("t", LARGE)
    reader.send(fetch_one("t"), VERSION)
    await disk.is_asked()
    await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), DeleteTopicsResponse, 1)
    disk.spin()
    answer = await asyncio.wait_for(reader.receive(FetchResponse, VERSION), 10)
    assert records_of(answer) == 1, "what was read is held open"


async def test_where_the_records_lie_is_looked_up_off_the_loop_too(
    start_node: Any, connect: Any, disk: HungDisk
) -> None:
    node = await start_node()
    reader, other = await connect(node), await connect(node)
    await reader.create("t")
    for _ in range(8):
        await reader.produce("t", *[SMALL] * 3)
    log = node._replicas.table.leader_of("t", 0).log
    log.segments.active.memo.clear()
    reader.send(fetch_one("t", 13), VERSION)
    await disk.is_asked()
    await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    disk.spin()
    answer = await asyncio.wait_for(reader.receive(FetchResponse, VERSION), 10)
    assert records_of(answer) == 12, "from the batch on that holds offset 13"


async def test_a_partition_whose_topic_goes_while_it_is_looked_up_is_unknown(
    start_node: Any, connect: Any, disk: HungDisk
) -> None:
    node = await start_node()
    reader, other = await connect(node), await connect(node)
    await reader.create("t")
    for _ in range(8):
        await reader.produce("t", *[SMALL] * 3)
    node._replicas.table.leader_of("t", 0).log.segments.active.memo.clear()
    reader.send(fetch_one("t", 13), VERSION)
    await disk.is_asked()
    await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), DeleteTopicsResponse, 1)
    disk.spin()
    answer = await asyncio.wait_for(reader.receive(FetchResponse, VERSION), 10)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_disk_that_cannot_read_costs_its_reader_the_connection(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To try again and again would keep a thread, of which there are few, for as long as the reader waits."""
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    await client.produce("t", LARGE)
    tries: list[int] = []

    def unreadable(_fd: int, *, position: int, **_: Any) -> None:
        tries.append(position)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(portable, "is_cached", lambda _fd, **_: False)
    monkeypatch.setattr(portable, "load_pages", unreadable)
    client.send(fetch_one("t"), VERSION)
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(client.reader.read(), 10)  # to the end
    assert len(tries) == 1
