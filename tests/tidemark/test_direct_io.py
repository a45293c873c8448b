"""Reads and writes past the page cache: the same bytes as with others, wherever they begin and end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tidemark import direct_io, portable
from tidemark.direct_io import ALIGNMENT, READ_BYTES_MIN, WRITE_BYTES, DirectReader, DirectWriter
from tidemark.files import REAL_FILES

SIZE: Final = 3 * READ_BYTES_MIN + 1234  # it ends in the middle of a page


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def fd(log: Path) -> Iterator[int]:
    fd = os.open(log, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "is_cached", lambda *_args, **_options: False)


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("position", [0, 1, ALIGNMENT - 1, ALIGNMENT, ALIGNMENT + 1, SIZE - READ_BYTES_MIN])
@pytest.mark.parametrize("length", [READ_BYTES_MIN, READ_BYTES_MIN + 1, 2 * READ_BYTES_MIN - 1, 10 * SIZE])
def test_the_bytes_are_the_same_wherever_a_read_begins_and_ends(log: Path, fd: int, position: int, length: int) -> None:
    expected = log.read_bytes()[position : position + length]
    assert DirectReader().pread(fd, length, position) == expected


@pytest.mark.usefixtures("cold")
def test_past_the_end_there_is_nothing(fd: int) -> None:
    reader = DirectReader()
    assert reader.pread(fd, READ_BYTES_MIN, SIZE) == b""
    assert reader.pread(fd, READ_BYTES_MIN, SIZE + 10 * ALIGNMENT) == b""


@pytest.mark.usefixtures("cold")
def test_what_was_just_written_is_read(log: Path, fd: int) -> None:
    with log.open("r+b") as file:
        file.seek(ALIGNMENT + 5)
        file.write(b"just now")
    assert DirectReader().pread(fd, SIZE, 0) == log.read_bytes()


@pytest.mark.usefixtures("cold")
def test_the_descriptor_is_as_it_was_afterwards(fd: int) -> None:
    DirectReader().pread(fd, SIZE, 0)
    assert len(os.pread(fd, 7, 3)) == 7  # nothing that O_DIRECT would allow


@pytest.mark.usefixtures("cold")
def test_a_file_system_that_cannot_do_it_is_asked_once(log: Path, fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def refused(*_args: object) -> int:
        tries.append(1)
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "preadv", refused)
    reader = DirectReader()
    assert reader.pread(fd, SIZE, 0) == reader.pread(fd, SIZE, 0) == log.read_bytes()
    assert len(tries) == 1


@pytest.mark.usefixtures("cold")
def test_a_disk_that_cannot_be_read_says_so(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", failed)
    with pytest.raises(OSError, match="Input/output error"):
        DirectReader().pread(fd, SIZE, 0)


def test_systems_without_direct_reads_do_without(log: Path, fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "O_DIRECT", None)
    monkeypatch.setattr(portable, "is_cached", None)  # not even asked
    assert DirectReader().pread(fd, SIZE, 0) == log.read_bytes()


def test_what_is_in_the_page_cache_is_taken_from_there(log: Path, fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def direct(*_args: object) -> int:
        raise AssertionError("it was in the page cache")

    monkeypatch.setattr(portable, "is_cached", lambda *_args, **_options: True)
    monkeypatch.setattr(os, "preadv", direct)
    assert DirectReader().pread(fd, SIZE, 0) == log.read_bytes()


@pytest.fixture
def new(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "new", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    yield fd
    os.close(fd)


def write_all(writer: DirectWriter, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[writer.write(view) :]


@pytest.mark.parametrize("size", [1, ALIGNMENT, ALIGNMENT + 1, WRITE_BYTES, 2 * WRITE_BYTES + 3 * ALIGNMENT + 17])
@pytest.mark.parametrize("piece", [1_000, ALIGNMENT, 700_001, 1 << 23])
def test_what_is_written_is_in_the_file_whatever_the_pieces(tmp_path: Path, new: int, size: int, piece: int) -> None:
    data, writer = os.urandom(size), DirectWriter(new)
    for at in range(0, size, piece):
        write_all(writer, data[at : at + piece])
    writer.finish()
    assert (tmp_path / "new").read_bytes() == data
    assert os.write(new, b"!") == 1  # the descriptor is as it was


def test_nothing_written_is_an_empty_file(tmp_path: Path, new: int) -> None:
    DirectWriter(new).finish()
    assert (tmp_path / "new").read_bytes() == b""


def test_a_file_system_that_cannot_write_directly_is_written_to_as_usual(
    tmp_path: Path, new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refused(*_args: object) -> None:
        tries.append(1)
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(direct_io, "_directly", refused)
    data, writer = os.urandom(3 * WRITE_BYTES), DirectWriter(new)
    write_all(writer, data)
    writer.finish()
    assert (tmp_path / "new").read_bytes() == data
    assert len(tries) == 1


def test_a_disk_that_takes_a_part_is_asked_to_take_the_rest(
    tmp_path: Path, new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, memoryview(data)[: 3 * ALIGNMENT]))
    data, writer = os.urandom(WRITE_BYTES + 100), DirectWriter(new)
    write_all(writer, data)
    writer.finish()
    assert (tmp_path / "new").read_bytes() == data


def test_a_full_disk_says_so(new: int, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = DirectWriter(new)
    write_all(writer, b"x" * WRITE_BYTES)
    monkeypatch.setattr(os, "write", lambda *_args: 0)
    with pytest.raises(OSError, match="No space left"):
        writer.finish()


def test_starting_to_write_back_promises_nothing_and_changes_nothing(tmp_path: Path) -> None:
    file = REAL_FILES.open_data(str(tmp_path / "new"), create=True)
    REAL_FILES.write_all(file.fileno(), b"x" * 100_000)
    REAL_FILES.start_writeback(file.fileno(), position=0, length=100_000)
    REAL_FILES.start_writeback(-1, position=0, length=100_000)  # the sync that follows would tell
    assert (tmp_path / "new").read_bytes() == b"x" * 100_000
    file.close()
