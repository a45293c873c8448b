"""A cleaned segment takes the place of old ones, whatever else lies in the directory and whoever else looks at it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemark.protocol.records import Record, build_batch, iter_records, read_header
from tidemark.storage import (
    CleaningFailed,
    Files,
    Log,
    LogConfig,
    StorageError,
    job_for,
    leftovers,
    measure,
    names,
    swap,
)
from tidemark.storage.cleaning.clean import clean

T0 = 1_700_000_000_000
KEYS = 40
CONFIG = LogConfig(
    segment_bytes=3000, index_interval_bytes=100, compact=True, delete=False, file_delete_delay_ms=60_000
)

OpenLog = Callable[..., Log]


class Killed(BaseException):
    pass


class KilledAtRename(Files):
    """Ends the process at the n-th rename."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 1 << 30

    def rename(self, source: str, target: str) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1
        super().rename(source, target)

    def fdatasync(self, fd: int) -> None:
        """The process is killed, not the machine."""

    def sync_file(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...


class FullDirectory(Files):
    """Has no room for names of one kind."""

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self.suffix = suffix
        self.refused = 0

    def rename(self, source: str, target: str) -> None:
        if target.endswith(self.suffix):
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source, None, target)
        super().rename(source, target)


def fill(log: Log) -> dict[bytes, bytes]:
    """Most keys come once more and again; a few are only in the middle."""
    last = {}
    for number in range(160):
        key = b"only%d" % number if number % 20 == 3 else b"key%d" % (number % KEYS)
        last[key] = b"%d" % number * 30
        batch = build_batch([Record(timestamp=T0 + number, key=key, value=last[key])])
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)
    log.flush()
    return last


def cleaned_groups(log: Log) -> list[Any]:
    dirtiness = measure(log, cleaned_up_to=0, high_watermark=log.end_offset, now_ms=T0)
    job = job_for(log, dirtiness, now_ms=T0, map_bytes=1 << 20, hash_seed=1)
    return list(clean(job, files=log.files))


def last_values(log: Log, read_batches: Any) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for _, batch in read_batches(log) for record in iter_records(batch)}


def test_what_another_cleaning_left_does_not_make_a_start_undo_a_swap(
    tmp_path: Path, open_log: OpenLog, read_batches: Any
) -> None:
    """A cleaning process that is killed leaves `.cleaned` files. A swap beside such a file of an earlier offset looked,
    to a start, like half of what a segment is split into, and was thrown away; the old segments were, too."""
    log = open_log("origin-0", config=CONFIG)
    last = fill(log)
    log.close(clean=False)
    is_over = False
    for step in range(100):
        if is_over:
            break
        shutil.copytree(tmp_path / "origin-0", tmp_path / "t-0")
        files = KilledAtRename()
        log = open_log("t-0", config=CONFIG, files=files, clean=False, recovery_point=log.end_offset)
        log.flush()
        groups = cleaned_groups(log)
        assert len(groups) > 1
        for left in ("00000000000000000001.log.cleaned", "00000000000000000001.index.cleaned"):
            (tmp_path / "t-0" / left).write_bytes(b"left")
        files.left = step
        try:
            for group in groups:
                swap(log, group)
            is_over = True
        except Killed:
            pass
        log.fail("the process is gone")
        log = open_log("t-0", config=CONFIG, clean=False, recovery_point=160)
        assert log.end_offset == 160
        assert last_values(log, read_batches) == last, f"killed at rename {step}"
        log.close(clean=False)
        shutil.rmtree(tmp_path / "t-0")
    assert is_over


def test_a_disk_so_full_that_the_directory_takes_no_other_name_does_not_keep_old_segments(
    open_log: OpenLog, read_batches: Any
) -> None:
    """The log went offline, though nothing was wrong with the disk."""
    files = FullDirectory(names.DELETED)
    log = open_log(config=CONFIG, files=files)
    last = fill(log)
    for group in cleaned_groups(log):
        swap(log, group)
    assert files.refused > 3
    assert last_values(log, read_batches) == last
    log.close()
    assert last_values(open_log(config=CONFIG), read_batches) == last


@pytest.mark.parametrize("refused", [".index.swap", ".timeindex.swap", ".log.swap"])
def test_a_swap_that_finds_no_room_is_undone_and_succeeds_when_there_is_some(
    tmp_path: Path, open_log: OpenLog, read_batches: Any, refused: str
) -> None:
    files = FullDirectory(refused)
    log = open_log(config=CONFIG, files=files)
    last = fill(log)
    group = cleaned_groups(log)[0]
    with pytest.raises(CleaningFailed, match="No space left") as failed:
        swap(log, group)
    assert failed.value.is_passing
    assert not [name for name in os.listdir(tmp_path / "topic-0") if name.startswith(f"{0:020d}.") and "." in name[21:]]
    assert last_values(log, read_batches) == last
    files.suffix = "never"
    for group in cleaned_groups(log):
        swap(log, group)
    assert last_values(log, read_batches) == last


def test_an_index_of_a_swap_that_was_given_up_is_not_put_in_place_by_a_later_start(
    tmp_path: Path, open_log: OpenLog, read_batches: Any
) -> None:
    log = open_log(config=CONFIG)
    last = fill(log)
    (tmp_path / "topic-0" / f"{0:020d}.index.swap").write_bytes(bytes(range(8)))
    swap(log, cleaned_groups(log)[1])
    assert not [name for name in os.listdir(tmp_path / "topic-0") if name.endswith(".swap")]
    assert last_values(log, read_batches) == last


def test_a_search_that_began_before_a_swap_leaves_the_new_indexes_alone(
    tmp_path: Path, open_log: OpenLog, read_batches: Any
) -> None:
    log = open_log(config=CONFIG)
    last = fill(log)
    for segment in list(log.segments)[:-1]:
        segment.release()
    search = log.begin_search(T0 + 30)  # of segments that are not open: another thread opens them when it comes to it
    opened = [segment.copy() for segment in log.segments]
    for copy in opened:
        copy.open_file()  # that far another thread had come: the old file, and no index yet
    for group in cleaned_groups(log):
        swap(log, group)
    directory = tmp_path / "topic-0"
    before = {path.name: path.read_bytes() for path in directory.glob("*index")}
    for copy in opened:
        with suppress(StorageError, FileNotFoundError):  # who searches tries again, in the log as it is now
            copy.locate(copy.base_offset + 9)
    with suppress(StorageError, FileNotFoundError):
        search()
    assert {path.name: path.read_bytes() for path in directory.glob("*index")} == before
    assert last_values(log, read_batches) == last


def test_a_kill_between_two_renames_leaves_no_log_without_its_indexes(tmp_path: Path) -> None:
    """Of old segments that the cleaned one does not reach to, since nothing is left of them."""
    source = tmp_path / "source"
    log = Log.open(str(source), config=CONFIG, now_ms=lambda: T0, clean=True)
    keys = [b"9", *(b"%d" % (number % 3) for number in range(60))]
    for number, key in enumerate(keys):
        batch = build_batch([Record(timestamp=T0 + number, key=key, value=bytes(200))])
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)
    assert log.segment_count > 4
    log.close()
    for count in range(40):
        files, path = KilledAtRename(), tmp_path / f"log-{count}"
        shutil.copytree(source, path)
        log = Log.open(str(path), config=replace(CONFIG, segment_bytes=10_000), files=files, clean=True)
        dirtiness = measure(log, cleaned_up_to=0, high_watermark=log.end_offset, now_ms=T0)
        cleaned = next(clean(job_for(log, dirtiness, now_ms=T0, map_bytes=1 << 20, hash_seed=9), files=files))
        files.left = count
        with suppress(Killed):
            swap(log, cleaned)
        found = set(leftovers.clear(Files(), str(path)))
        for name in [each for each in found if each.endswith(names.LOG)]:
            stem = name.removesuffix(names.LOG)
            assert {stem + names.OFFSET_INDEX, stem + names.TIME_INDEX} <= found, count
