"""The thread that changes files for the cleaning process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark.portable import run_when_idle
from tidemark.storage.cleaning.writer_thread import WRITE_BYTES, WriterThread


def test_what_is_written_is_there_and_errors_are_told(tmp_path: Path) -> None:
    files, data = WriterThread(), os.urandom(3 * WRITE_BYTES + 5)
    path = str(tmp_path / "file")
    file = files.open_data(path, create=True)
    files.write_all(file.fileno(), data)
    files.fdatasync(file.fileno())
    files.set_modified(path, 5000)
    assert Path(path).read_bytes() == data
    assert files.modified_ms(path) == 5000
    with pytest.raises(IsADirectoryError):
        files.open_data(str(tmp_path))
    files.remove(path)
    files.remove(path)
    assert not os.path.exists(path)


def test_it_keeps_its_share_when_the_process_gives_way_to_all_others() -> None:
    child = os.fork()
    if not child:
        files = WriterThread()
        is_idle = run_when_idle() and os.sched_getscheduler(0) == os.SCHED_IDLE
        os._exit(0 if is_idle and files._call(os.sched_getscheduler, 0) == os.SCHED_OTHER else 1)
    assert os.waitpid(child, 0)[1] == 0
