"""Whose directory it is decides what a gap between two segments of a compacted log means after a power cut: where only
we have cleaned, one past the recovery point is a lost end; Apache Kafka may have cleaned there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark.storage import LogConfig, LogDirectory

CONFIG = LogConfig(segment_bytes=4000, compact=True, delete=False)

OpenDirectory = Callable[..., LogDirectory]


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_compacted_log_that_lost_the_end_of_a_segment_ends_there(
    is_ours: bool, open_directory: OpenDirectory, path: Path, make_batch: Any, append: Any
) -> None:
    """The segment that was begun behind it had reached the disk. Taken for a gap that compaction left, other records
    would follow where acknowledged ones are missing, and a follower would never fetch them."""
    directory = open_directory()
    log = directory.open_log("t", 0, config=CONFIG)
    append(log, make_batch(2))
    log.flush()
    directory.write_checkpoints()
    synced = log.segments.active.size
    append(log, make_batch(2))
    log.roll()
    append(log, make_batch(2))
    directory.close(clean=False)
    os.truncate(path / "t-0" / f"{0:020d}.log", synced)
    if not is_ours:
        (path / ".tidemark").unlink()
    directory = open_directory()
    assert directory.open_log("t", 0, config=CONFIG).end_offset == (2 if is_ours else 6)


def test_a_directory_of_kafkas_is_ours_once_it_was_stopped_cleanly(
    open_directory: OpenDirectory, path: Path, make_batch: Any, append: Any
) -> None:
    directory = open_directory()
    append(directory.open_log("t", 0, config=CONFIG), make_batch(2))
    directory.close(clean=False)
    mark = path / ".tidemark"
    mark.unlink()  # as Apache Kafka leaves it
    directory = open_directory()
    directory.open_log("t", 0, config=CONFIG)
    assert not mark.exists()
    directory.close()
    open_directory()
    assert mark.exists()


def test_a_full_disk_does_not_keep_a_directory_from_being_opened(
    open_directory: OpenDirectory, path: Path, tmp_path: Path, faulty_files: Any, make_batch: Any, append: Any
) -> None:
    """It cannot be marked then, and stays as careful as before."""
    directory = open_directory()
    append(directory.open_log("t", 0, config=CONFIG), make_batch(2))
    directory.close()
    (path / ".tidemark").unlink()
    files = faulty_files(tmp_path)
    files.room = 0
    directory = open_directory(files)
    assert directory.was_clean
    assert directory.open_log("t", 0, config=CONFIG).end_offset == 2
    assert not (path / ".tidemark").exists()
