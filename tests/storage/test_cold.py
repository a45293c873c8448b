"""Reads that do not wait for the disk: what is not in memory is named, loaded elsewhere, and then read."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemark import portable
from tidemark.storage import ColdRead, FileSlice, Log, OffsetOutOfRange, SegmentCache

PAGE = 4096


class PageCache:
    """Which pages are in memory, by the test's will. Reads that would wait for the disk are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cached: set[tuple[int, int]] = set()
        self.loads = 0
        self._real = portable.read_cached_into
        monkeypatch.setattr(portable, "read_cached_into", self._read)
        monkeypatch.setattr(portable, "load_pages", self._load)

    def _pages(self, fd: int, position: int, length: int) -> set[tuple[int, int]]:
        inode = Path(f"/proc/self/fd/{fd}").stat().st_ino
        return {(inode, page) for page in range(position // PAGE, (position + length - 1) // PAGE + 1)}

    def _read(self, fd: int, buffer: Any, position: int) -> int:
        if not self._pages(fd, position, len(buffer)) <= self.cached:
            raise BlockingIOError
        return self._real(fd, buffer, position)

    def _load(self, fd: int, *, position: int, length: int) -> None:
        self.loads += 1
        self.cached |= self._pages(fd, position, length)


@pytest.fixture
def page_cache(monkeypatch: pytest.MonkeyPatch) -> PageCache:
    return PageCache(monkeypatch)


@pytest.fixture
def long_log(open_log: Any, make_batch: Any, append: Any) -> Log:
    """Thirty segments, of which two may be open beside the active one."""
    log: Log = open_log(cache=SegmentCache(limit=2))
    while log.segment_count < 30:
        append(log, make_batch(3, size=100))
    return log


def read_patiently(log: Log, **wanted: Any) -> tuple[list[FileSlice], int]:
    """The slices, and how often something had to be loaded first."""
    for loads in range(100):
        try:
            return log.read(**wanted, wait=False), loads
        except ColdRead as cold:
            on_another_thread = threading.Thread(target=cold.load)
            on_another_thread.start()
            on_another_thread.join()
            cold.finish()
    raise AssertionError("it is never loaded")


def test_a_segment_that_is_not_open_is_opened_elsewhere(long_log: Log) -> None:
    with pytest.raises(ColdRead, match="not open"):
        long_log.read(offset=0, limit_bytes=1000, wait=False)
    assert read_patiently(long_log, offset=0, limit_bytes=1000)[0]
    assert long_log.read(offset=0, limit_bytes=1000, wait=False), "it is open now"


def test_what_has_just_been_written_is_read_at_once(long_log: Log, make_batch: Any, append: Any) -> None:
    appended = append(long_log, make_batch(3))
    assert long_log.read(offset=appended.base_offset, limit_bytes=1000, wait=False)


def test_bytes_that_are_not_in_memory_are_loaded_elsewhere(long_log: Log, page_cache: PageCache) -> None:
    offset = next(iter(long_log.segments)).base_offset + 10
    slices, loads = read_patiently(long_log, offset=offset, limit_bytes=900)
    assert slices == long_log.read(offset=offset, limit_bytes=900)
    assert loads == 2, "the segment, then where the read begins, in whose page it ends"
    assert page_cache.loads == 1


def test_whatever_is_in_memory_a_read_that_does_not_wait_yields_the_same(long_log: Log, page_cache: PageCache) -> None:
    random = Random(5)
    for _ in range(300):
        page_cache.cached = {each for each in page_cache.cached if random.random() < 0.7}
        wanted: dict[str, Any] = {
            "offset": random.randrange(long_log.end_offset),
            "limit_bytes": random.choice([1, 300, 1000, 5000]),
            "up_to": random.choice([None, random.randrange(long_log.end_offset)]),
            "at_least_one": random.random() < 0.8,
        }
        assert read_patiently(long_log, **wanted)[0] == long_log.read(**wanted)


def test_a_segment_that_is_deleted_while_it_is_opened_is_out_of_range(long_log: Log) -> None:
    with pytest.raises(ColdRead) as cold:
        long_log.read(offset=0, limit_bytes=1000, wait=False)
    long_log.delete_before(long_log.end_offset - 1)
    long_log.remove_deleted(1 << 50)
    cold.value.load()
    cold.value.finish()
    with pytest.raises(OffsetOutOfRange):
        long_log.read(offset=0, limit_bytes=1000, wait=False)


def test_a_segment_that_is_truncated_while_it_is_opened_keeps_its_own_index(long_log: Log) -> None:
    with pytest.raises(ColdRead) as cold:
        long_log.read(offset=0, limit_bytes=1000, wait=False)
    cold.value.load()
    long_log.truncate_to(7)
    cold.value.finish()
    slices, _ = read_patiently(long_log, offset=0, limit_bytes=1 << 20)
    assert sum(map(len, slices)) == long_log.size_bytes
    assert slices == long_log.read(offset=0, limit_bytes=1 << 20)


def test_a_damaged_index_is_rebuilt_elsewhere(long_log: Log) -> None:
    first = next(iter(long_log.segments))
    first.release()
    Path(first.path(".index")).write_bytes(b"no index")
    slices, loads = read_patiently(long_log, offset=10, limit_bytes=900)
    assert loads >= 1
    assert slices == long_log.read(offset=10, limit_bytes=900)


def test_real_pages_are_dropped_and_loaded(open_log: Any, make_batch: Any, append: Any) -> None:
    """Without a double: the page cache of this machine, where its file system lets us look."""
    log: Log = open_log(cache=SegmentCache(limit=2))
    while log.segment_count < 3:
        append(log, make_batch(3, size=100))
    (piece,) = log.read(offset=0, limit_bytes=1 << 20)
    piece.load(bytes_max=1 << 20)
    assert piece.is_cached(bytes_max=1 << 20)
