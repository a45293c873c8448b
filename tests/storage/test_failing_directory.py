"""A log directory that fails: what counts as a failure, and what is left of it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tidemark.storage import DirectoryOffline, LogConfig, LogDirectory, LogOffline, WriteFailed, is_disk_failure


def test_a_full_disk_has_not_failed() -> None:
    full = WriteFailed("no room")
    full.__cause__ = OSError(errno.ENOSPC, "no space left on device")
    broken = WriteFailed("broken")
    broken.__cause__ = OSError(errno.EIO, "input/output error")
    assert [is_disk_failure(each) for each in (full, broken, OSError(errno.EMFILE, ""), OSError(errno.EROFS, ""))] == [
        False,
        True,
        False,
        True,
    ]


def test_a_volume_that_is_not_mounted_any_more_is_noticed(tmp_path: Path) -> None:
    directory = LogDirectory.open(str(tmp_path / "data"))
    directory.check()
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        directory.check()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".lock").touch()
    with pytest.raises(DirectoryOffline):
        directory.check()
    directory.fail("unplugged")
    directory.close()


def test_a_directory_that_failed_is_not_closed_as_clean_and_opens_nothing(tmp_path: Path) -> None:
    directory = LogDirectory.open(str(tmp_path))
    log = directory.open_log("t", 0, config=LogConfig())
    directory.fail("broken")
    with pytest.raises(LogOffline, match="broken"):
        log.check_online()
    with pytest.raises(DirectoryOffline, match="broken"):
        directory.open_log("u", 0, config=LogConfig())
    directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    LogDirectory.open(str(tmp_path)).close()
