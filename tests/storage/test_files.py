from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidemark.files import COSTLY_BYTES, _close_on_a_thread
from tidemark.storage.files import Files, directories_below

FILES = Files()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "file")


def test_replacing_leaves_no_temporary_file(path, tmp_path):
    FILES.replace(path, b"one", sync=True)
    FILES.replace(path, b"two", sync=False)
    assert FILES.read_all(path) == b"two"
    assert os.listdir(tmp_path) == ["file"]


def test_only_a_file_that_holds_something_is_truncated_before_it_is_overwritten(path, monkeypatch):
    truncated = []

    def truncate(fd, size):
        truncated.append(size)
        os.ftruncate(fd, size)

    files = Files()
    monkeypatch.setattr(files, "truncate", truncate)
    files.overwrite(path, b"longer")
    assert truncated == [], "ext4 would write it out when it is closed"
    files.overwrite(path, b"short")
    assert (truncated, files.read_all(path)) == ([0], b"short")


def test_appending_continues_after_a_truncation(path):
    FILES.append_to(path, b"abcdef")
    file = FILES.open_data(path)
    FILES.truncate(file.fileno(), 3)
    FILES.write_all(file.fileno(), b"xyz")
    assert FILES.read_all(path) == b"abcxyz"


def test_reading_past_the_end_returns_what_there_is(path):
    FILES.append_to(path, b"abcdef")
    file = FILES.open_data(path)
    assert FILES.read_range(file.fileno(), position=4, length=10) == b"ef"
    assert FILES.read_range(file.fileno(), position=9, length=10) == b""


def test_the_tail_of_a_file_of_even_entries(path):
    FILES.append_to(path, b"aaabbbccc")
    assert FILES.read_tail(path, 3) == b"ccc"
    assert FILES.read_tail(path, 4) == b""


def test_removing_what_is_gone_is_no_error(path):
    FILES.remove(path)


def test_making_a_directory_tells_whether_it_was_new(path):
    assert FILES.make_directory(path)
    assert not FILES.make_directory(path)


def test_only_directories_are_listed_in_order(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert list(directories_below(FILES, str(tmp_path))) == ["a", "b"]


def test_dropping_a_file_closes_it_without_a_warning(path):
    file = FILES.open_data(path, create=True)
    descriptor = file.fileno()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize(("is_deleted", "closes_here"), [(False, True), (True, False)])
def test_a_large_file_that_was_deleted_is_closed_by_a_thread(path, monkeypatch, is_deleted, closes_here):
    """Whoever closes it last waits until its blocks are free."""
    handed_over = []

    def close(fd):
        handed_over.append(fd)
        os.close(fd)

    monkeypatch.setattr("tidemark.files._close_on_a_thread", close)
    FILES.append_to(path, bytes(COSTLY_BYTES + 4096))
    file = FILES.open_data(path)
    if is_deleted:
        os.remove(path)
    del file
    assert (not handed_over) == closes_here


def test_a_thread_closes_what_it_is_handed():
    reading, writing = os.pipe()
    _close_on_a_thread(writing)
    assert os.read(reading, 1) == b""  # when the other end is closed
    os.close(reading)


def test_a_process_ends_that_still_holds_a_large_deleted_file(path):
    """Python drops what is left when no thread can begin any more."""
    FILES.append_to(path, bytes(COSTLY_BYTES + 4096))
    script = f"import os; from tidemark.files import Files; held = Files().open_data({path!r}); os.remove({path!r})"
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, check=True)
    assert ended.stderr == b""
