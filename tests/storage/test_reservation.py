"""Blocks that are reserved for what will be appended: how many, and that nothing but the disk notices."""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark import portable
from tidemark.storage.config import LogConfig
from tidemark.storage.files import Files, Reservation
from tidemark.storage.reservation import AHEAD_BYTES_MAX, AHEAD_BYTES_MIN, LEFT_BYTES_MAX, SHARE, release, reserve
from tidemark.storage.segment import Segment

MB = 1 << 20


class Told(Files):
    """What was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved: list[tuple[int, int]] = []
        self.cut: list[int] = []
        self.truncate = self._truncate

    def reserve(self, fd: int, *, position: int, length: int, reservation: Reservation) -> None:
        self.reserved.append((position, position + length))

    def _truncate(self, fd: int, size: int) -> None:
        self.cut.append(size)
        os.ftruncate(fd, size)


@pytest.fixture
def segment(tmp_path: Any) -> Any:
    segment = Segment.create(Told(), str(tmp_path), 0, created_ms=0)
    segment.open_file()
    return segment


def test_a_segment_that_grows_has_blocks_for_an_eighth_more_at_most(segment: Any) -> None:
    reserved = segment.files.reserved
    for size in range(0, 400 * MB, MB):
        segment.size = size
        reserve(segment, segment_bytes=1 << 30)
        assert segment.reserved_end <= size + min(size // SHARE, AHEAD_BYTES_MAX)
        if size >= SHARE * AHEAD_BYTES_MIN:
            assert segment.reserved_end - size >= AHEAD_BYTES_MIN // 2
    assert reserved[0][0] == SHARE * AHEAD_BYTES_MIN
    assert all(end == begin for (_, end), (begin, _) in pairwise(reserved))
    assert len(reserved) < 70


def test_no_blocks_are_reserved_behind_the_end_that_a_segment_may_have(segment: Any) -> None:
    for size in range(0, 100 * MB, MB):
        segment.size = size
        reserve(segment, segment_bytes=100 * MB - 17)
    assert segment.reserved_end == 100 * MB - 17


@pytest.mark.parametrize("left", [LEFT_BYTES_MAX, LEFT_BYTES_MAX + 1])
def test_what_is_left_is_given_back_if_it_is_much(segment: Any, left: int) -> None:
    segment.write(b"x" * 100, 100)
    segment.reserved_end = 100 + left
    release(segment)
    assert segment.files.cut == ([100] if left > LEFT_BYTES_MAX else [])
    assert os.path.getsize(segment.path(".log")) == 100


def test_nothing_is_cut_off_if_the_file_is_longer_than_it_is_known_to_be(segment: Any) -> None:
    segment.write(b"x" * 100, 100)
    os.write(segment.fd, b"y")
    segment.reserved_end = 100 * MB
    release(segment)
    assert segment.files.cut == []


class AtOnce(Files):
    """Without a thread."""

    def reserve(self, fd: int, *, position: int, length: int, reservation: Reservation) -> None:
        portable.reserve_blocks(fd, position=position, length=length)


def allocated(path: str) -> int:
    return os.stat(path).st_blocks * 512


def test_a_log_gives_back_its_blocks_when_it_is_rolled_and_when_it_is_closed(
    open_log: Any, make_batch: Any, append: Any
) -> None:
    log = open_log(config=LogConfig(segment_bytes=1 << 30), files=AtOnce())
    for end in (log.roll, log.close):
        segment = log.segments.active
        while segment.size < 40 * MB:
            append(log, make_batch(1, size=MB))
        assert segment.reserved_end > segment.size + LEFT_BYTES_MAX
        end()
        assert allocated(segment.path(".log")) < segment.size + LEFT_BYTES_MAX


def test_a_file_with_reserved_blocks_is_as_long_as_before_and_takes_appends(tmp_path: Any) -> None:
    files = Files()
    file = files.open_data(str(tmp_path / "data"), create=True)
    files.write_all(file.fileno(), b"before")
    portable.reserve_blocks(file.fileno(), position=6, length=8 * MB)
    assert files.open_size(file.fileno()) == 6
    files.write_all(file.fileno(), b" and after")
    assert files.read_all(str(tmp_path / "data")) == b"before and after"


def test_a_reservation_does_not_wait_and_leaves_no_descriptor(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def hangs(_fd: int, *, position: int, length: int) -> None:
        begun.set()
        go_on.wait(10)

    def close(fd: int) -> None:
        real_close(fd)
        ended.set()

    real_close = os.close
    files = Files()
    file = files.open_data(str(tmp_path / "data"), create=True)
    open_before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(portable, "reserve_blocks", hangs)
    monkeypatch.setattr(os, "close", close)
    files.reserve(file.fileno(), position=0, length=MB, reservation=Reservation())
    assert begun.wait(10)
    go_on.set()
    assert ended.wait(10)
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_what_cannot_be_reserved_is_no_error(tmp_path: Any) -> None:
    Files().reserve(-1, position=0, length=MB, reservation=Reservation())
    portable.reserve_blocks(-1, position=0, length=MB)


def test_a_thread_that_comes_too_late_reserves_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[int] = []
    monkeypatch.setattr(portable, "reserve_blocks", lambda fd, **_where: reserved.append(fd))
    reservation = Reservation()
    for _ in range(2):
        fd = os.open(tmp_path / "data", os.O_CREAT | os.O_RDWR)
        reservation.reserve_and_close(fd, 0, MB)
        reservation.end()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert len(reserved) == 1


def test_blocks_are_not_reserved_on_a_disk_that_is_nearly_full(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstatvfs

    def full(fd: int) -> Any:
        found = real(fd)
        return SimpleNamespace(f_bavail=found.f_blocks // 21, f_blocks=found.f_blocks)

    monkeypatch.setattr(os, "fstatvfs", full)
    with (tmp_path / "data").open("wb") as file:
        portable.reserve_blocks(file.fileno(), position=0, length=MB)
    assert allocated(str(tmp_path / "data")) == 0


def test_the_descriptor_that_is_cut_is_not_anothers_if_the_log_is_closed_meanwhile(segment: Any, tmp_path: Any) -> None:
    """A topic may be deleted while a thread makes its next segment."""
    segment.write(b"x" * 100, 100)
    segment.reserved_end = 100 + 2 * LEFT_BYTES_MAX
    others: list[Any] = []

    def closed_meanwhile(fd: int) -> int:
        size = os.fstat(fd).st_size
        segment.close_file()
        others.append((tmp_path / "other").open("wb", buffering=0))
        others[0].write(b"y" * 1000)
        return size

    segment.files.open_size = closed_meanwhile
    release(segment)
    assert os.fstat(others[0].fileno()).st_size == 1000
    segment.close_file()
    release(segment)
    others[0].close()
