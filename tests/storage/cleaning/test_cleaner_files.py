"""The files of the cleaning process, and the thread that changes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark import portable
from tidemark.portable import run_when_idle
from tidemark.storage.cleaning.cleaner_files import WRITE_BYTES, CleanerFiles


def test_what_is_written_is_there_and_errors_are_told(tmp_path: Path) -> None:
    files, data = CleanerFiles(), os.urandom(3 * WRITE_BYTES + 5)
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


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_log_that_was_not_in_the_page_cache_is_read_and_written_past_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    monkeypatch.setattr(portable, "is_cached", lambda *_args, **_options: is_cached)
    files, data = CleanerFiles(), os.urandom((3 << 20) + 777)
    (tmp_path / "old").write_bytes(data)
    old = files.open_to_read(str(tmp_path / "old"))
    read = files.read_window(old.fileno(), position=0, length=len(data))
    new = files.open_data(str(tmp_path / "new"), create=True)
    for at in range(0, len(read), 300_000):
        files.write_all(new.fileno(), read[at : at + 300_000])
    assert (os.path.getsize(tmp_path / "new") < len(data)) is not is_cached  # what waits for a whole block
    files.overwrite(str(tmp_path / "index"), b"entries")  # other files are not concerned
    files.fdatasync(new.fileno())
    assert (tmp_path / "new").read_bytes() == data
    assert (tmp_path / "index").read_bytes() == b"entries"


def after_a_cold_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CleanerFiles:
    """Of a log that is not in the page cache: what is written next goes past it, too."""
    monkeypatch.setattr(portable, "is_cached", lambda *_args, **_options: False)
    files = CleanerFiles()
    (tmp_path / "old").write_bytes(bytes(1 << 20))
    old = files.open_to_read(str(tmp_path / "old"))
    files.read_window(old.fileno(), position=0, length=1 << 20)
    return files


def test_what_was_given_up_is_not_written_into_the_next_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = after_a_cold_read(tmp_path, monkeypatch)
    given_up = files.open_data(str(tmp_path / "given up"), create=True)
    files.write_all(given_up.fileno(), b"given up")
    given_up.close()
    files.overwrite(str(tmp_path / "index"), b"entries")  # gets the same descriptor
    assert (tmp_path / "index").read_bytes() == b"entries"


def test_an_index_beside_an_empty_log_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = after_a_cold_read(tmp_path, monkeypatch)
    empty = files.open_data(str(tmp_path / "new"), create=True)
    files.fdatasync(empty.fileno())
    empty.close()
    files.overwrite(str(tmp_path / "index"), b"entries")  # gets the same descriptor
    assert (tmp_path / "index").read_bytes() == b"entries"


def test_it_keeps_its_share_when_the_process_gives_way_to_all_others() -> None:
    child = os.fork()
    if not child:
        files = CleanerFiles()
        is_idle = run_when_idle() and os.sched_getscheduler(0) == os.SCHED_IDLE
        os._exit(0 if is_idle and files._call(os.sched_getscheduler, 0) == os.SCHED_OTHER else 1)
    assert os.waitpid(child, 0)[1] == 0
