"""Random histories of a log's indexes: what is appended, rolled, truncated, loaded and searched on another thread, let
go of, cleaned, mended, moved, damaged and not saved, in any order. Whatever is looked up is found where it was written,
and once the log is closed its files are sound."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemark.protocol.records import Record, build_batch, iter_batches, read_header
from tidemark.storage import (
    REAL_FILES,
    CleaningFailed,
    ColdRead,
    Files,
    FileSlice,
    Finding,
    Log,
    LogConfig,
    LogOffline,
    SegmentCache,
    SegmentCopy,
    StorageError,
    WriteFailed,
    begin_move,
    catch_up,
    job_for,
    measure,
    mending_job,
    open_future,
    prepare,
    put_in_place,
    swap,
)
from tidemark.storage.cleaning.clean import clean
from tidemark.storage.moving import MARK, relocate
from tidemark.storage.tools.places import find_partitions
from tidemark.storage.tools.verify import verify

T0 = 1_700_000_000_000
INDEXES = (".index", ".timeindex")
CONFIG = LogConfig(
    segment_bytes=5000,
    index_interval_bytes=200,
    retention_ms=-1,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
)


class Refusing:
    """Added to files: index files are not written to, or a part of what is written."""

    refused_after: int | None = None  # bytes
    error = errno.ENOSPC

    def _check(self, path: str) -> bool:
        return self.refused_after is not None and path.endswith(INDEXES)

    def append_to(self, path: str, data: bytes) -> None:
        if self._check(path):
            super().append_to(path, data[: self.refused_after])  # type: ignore[misc]
            raise OSError(self.error, os.strerror(self.error))
        super().append_to(path, data)  # type: ignore[misc]

    def overwrite(self, path: str, data: bytes) -> None:
        if self._check(path):
            super().overwrite(path, data[: self.refused_after])  # type: ignore[misc]
            raise OSError(self.error, os.strerror(self.error))
        super().overwrite(path, data)  # type: ignore[misc]

    def truncate_file(self, path: str, size: int) -> None:
        if self._check(path) and self.refused_after == 0:
            raise OSError(self.error, os.strerror(self.error))
        super().truncate_file(path, size)  # type: ignore[misc]


@dataclass(frozen=True)
class Written:
    first: int
    last: int
    times: tuple[int, ...]
    data: bytes


class Run:
    def __init__(self, root: Path, files_type: type[Any], seed: int) -> None:
        self.random = Random(seed)
        self.root, self.number = root, 0
        self.disk_type = type("RefusingFiles", (Refusing, files_type), {})
        self.disk = self.fresh_disk()
        self.moves = 0
        self.batches: list[Written] = []
        self.end = 0
        self.flushed = 0
        self.now = T0
        self.has_times = self.random.random() < 0.9
        self.cache = SegmentCache(limit=self.random.choice([1, 2, 8]))
        self.directory = "a/t-0"
        self.damaged_times: set[str] = set()  # of segments that were written to then
        self.pending: list[Callable[[], None]] = []  # what is under way on other threads, to be finished on the log's
        self.log = self.open(clean=True)
        self.steps: list[str] = []

    def fresh_disk(self) -> Any:
        self.number += 1
        folder = self.root / str(self.number)
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True)
        disk = self.disk_type(folder)
        disk.adopt()
        return disk

    def open(self, *, clean: bool, recovery_point: int = 0) -> Log:
        return Log.open(
            os.path.join(self.disk.root, self.directory),
            config=CONFIG,
            files=self.disk,
            now_ms=lambda: T0,
            clean=clean,
            recovery_point=recovery_point,
            cache=self.cache,
        )

    def step(self) -> None:
        choices: list[tuple[Callable[[], None], int]] = [
            (self.append, 16),
            (self.read_cold, 4),
            (self.search_elsewhere, 4),
            (self.finish_one, 6),
            (self.look, 3),
            (self.reopen, 3),
            (self.roll, 2),
            (self.truncate, 1),
            (self.refuse, 2),
            (self.clean, 1),
            (self.mend, 1),
            (self.move, 1),
            (self.kill, 1),
            (self.power_cut, 1),
            (self.damage_while_open, 1),
        ]
        work = self.random.choices([each for each, _ in choices], [weight for _, weight in choices])[0]
        self.steps.append(work.__name__)
        work()

    # Writing

    def append(self) -> None:
        for _ in range(self.random.choice([1, 2, 8])):
            count = self.random.choice([1, 3])
            self.now += self.random.choice([0, 1, 1000, 1000, 1000, -5000])
            start = self.now if self.has_times and self.random.random() < 0.9 else -1
            times = tuple(start if start < 0 else start + each for each in range(count))
            records = [
                Record(timestamp=time, key=b"%d-%d" % (self.end, n), value=self.random.randbytes(50))
                for n, time in enumerate(times)
            ]
            batch = build_batch(records)
            try:
                self.log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)
            except WriteFailed:
                assert self.disk.refused_after is not None
                return
            self.batches.append(Written(self.end, self.end + count - 1, times, bytes(batch)))
            self.end += count

    def roll(self) -> None:
        try:
            self.log.roll()
        except WriteFailed:
            assert self.disk.refused_after is not None

    def truncate(self) -> None:
        self.heal()
        offset = (
            self.random.randint(0, self.end) if self.random.random() < 0.3 else self.end - self.random.randint(0, 20)
        )
        offset = max(offset, 0)
        self.log.truncate_to(offset)
        self.keep_up_to(offset)

    def keep_up_to(self, offset: int) -> None:
        gone = [each.first for each in self.batches if each.last >= offset]
        self.batches = [each for each in self.batches if each.last < offset]
        self.end = min([self.end, offset, *gone])
        self.flushed = min(self.flushed, self.end)
        assert self.log.end_offset == self.end, (self.log.end_offset, self.end)

    def refuse(self) -> None:
        """The disk takes no more for indexes, or again."""
        if self.disk.refused_after is not None:
            self.heal()
        else:
            self.disk.refused_after = self.random.choice([0, 0, 5, 12, 24])
            self.disk.error = self.random.choice([errno.ENOSPC, errno.EIO])

    def heal(self) -> None:
        self.disk.refused_after = None

    # Looking up

    def record_at(self, time: int | None, batches: list[Written]) -> int | None:
        placed = [(each.first + n, at) for each in batches for n, at in enumerate(each.times)]
        if time is None:
            time = max((at for _, at in placed), default=-1)
            if time < 0:
                return None
        return next((offset for offset, at in placed if at >= time), None)

    def some_time(self) -> int | None:
        times = [at for each in self.batches for at in each.times if at >= 0]
        if not times or self.random.random() < 0.1:
            return None
        return self.random.choice(times) + self.random.choice([-1, 0, 0, 1])

    def look(self) -> None:
        for _ in range(3):
            if self.end:
                self.check_read(self.random.randrange(self.end))
            self.check_search(self.some_time())

    def check_read(self, offset: int) -> None:
        limit = self.random.choice([1, 300, 3000])
        self.check_slices(offset, self.log.read(offset=offset, limit_bytes=limit))

    def check_slices(self, offset: int, slices: list[FileSlice]) -> None:
        data = b"".join(each.file.read_at(each.position, each.length) for each in slices)
        found = [bytes(batch) for _, batch in iter_batches(data)]
        first = next(at for at, each in enumerate(self.batches) if each.last >= offset)
        assert found
        assert found == [each.data for each in self.batches[first : first + len(found)]], f"from {offset}"

    def check_search(self, time: int | None) -> None:
        log = self.log
        found = log.offset_of_max_timestamp() if time is None else log.offset_for_timestamp(time)
        assert (None if found is None else found.offset) == self.record_at(time, self.batches), f"time {time}"

    def read_cold(self) -> None:
        if not self.end:
            return
        offset = self.random.randrange(self.end)
        try:
            self.check_slices(offset, self.log.read(offset=offset, limit_bytes=300, wait=False))
        except ColdRead as error:
            cold = error
            is_loaded = self.random.random() < 0.5
            if is_loaded:
                cold.load()

            def finish() -> None:
                if not is_loaded:
                    cold.load()
                cold.finish()

            self.pending.append(finish)

    def search_elsewhere(self) -> None:
        time, batches, log, generation = self.some_time(), list(self.batches), self.log, self.log.generation
        segments = list(self.log.segments)
        search = log.begin_search(time)

        def finish() -> None:
            now = {each: each.size for each in self.log.segments}
            is_same = self.log is log and log.generation == generation and all(each in now for each in segments)
            try:
                found = search()
            except (StorageError, OSError):
                assert not is_same
                return
            search.finish()
            if is_same:
                assert (None if found is None else found.offset) == self.record_at(time, batches), f"time {time}"

        self.pending.append(finish)

    def finish_one(self) -> None:
        if self.pending:
            self.pending.pop(self.random.randrange(len(self.pending)))()

    # Replacing

    def clean(self) -> None:
        self.heal()
        self.log.flush()
        self.flushed = self.end
        self.log.config = replace(CONFIG, compact=True)
        dirtiness = measure(self.log, cleaned_up_to=0, high_watermark=self.end, now_ms=T0)
        job = job_for(self.log, dirtiness, now_ms=T0, map_bytes=1 << 20, hash_seed=9)
        groups = list(clean(job, files=self.disk))
        self.log.config = CONFIG  # or a start would take what was lost for what was cleaned away

        def finish() -> None:
            with suppress(CleaningFailed, LogOffline):
                for each in groups:
                    swap(log, each)

        log = self.log
        if self.random.random() < 0.5:
            finish()
        else:
            self.pending.append(finish)

    def mend(self) -> None:
        self.heal()
        log, segment = self.log, self.random.choice(list(self.log.segments))
        if segment is log.segments.active or any("mend" in each.__qualname__ for each in self.pending):
            return
        mended = prepare(mending_job(log, segment, []), self.disk)

        def finish() -> None:
            with suppress(LogOffline):
                put_in_place(log, segment, mended)

        if self.random.random() < 0.5:
            finish()
        else:
            self.pending.append(finish)

    def move(self) -> None:
        """To the other directory."""
        self.heal()
        if any("clean" in each.__qualname__ or "mend" in each.__qualname__ for each in self.pending):
            return  # neither happens while a log moves
        self.moves += 1
        target = "b/t-0" if self.directory == "a/t-0" else "a/t-0"
        future_path = os.path.join(self.disk.root, os.path.dirname(target), f"t-0.{self.moves:032x}-future")
        begin_move(self.disk, future_path)
        active = self.log.segments.active
        for segment in self.log.segments:
            copy = SegmentCopy(self.disk, segment, directory=future_path)
            while segment is not active and copy.step():
                pass
        future = open_future(self.log, future_path, active_base=active.base_offset, start_offset=0, config=CONFIG)
        if self.random.random() < 0.5:
            self.append()
        catch_up(self.log, future)
        old = self.log.directory
        relocate(self.log, future, path=os.path.join(self.disk.root, target))
        for name in self.disk.list(old):
            self.disk.remove(os.path.join(old, name))
        os.rmdir(old)
        self.disk.remove(os.path.join(self.log.directory, MARK))
        self.log.flush()
        self.flushed = self.end
        self.disk.sync_directory(self.disk.root)
        self.directory = target

    # Starts

    def reopen(self) -> None:
        if self.random.random() < 0.3:
            while self.pending and self.random.random() < 0.8:
                self.finish_one()
        log = self.log
        try:
            log.close()
        except LogOffline:
            assert self.disk.refused_after is not None
            self.heal()
            self.log = self.open(clean=False)
            assert self.log.end_offset == self.end
            return
        self.heal()
        self.flushed = self.end
        if self.random.random() < 0.6:
            self.damage()
        self.log = self.open(clean=True)
        assert self.log.end_offset == self.end

    def kill(self) -> None:
        self.heal()
        point = self.random.choice([0, self.log.recovery_point])
        self.log.close(clean=False)
        self.log = self.open(clean=False, recovery_point=point)
        assert self.log.end_offset == self.end

    def power_cut(self) -> None:
        self.heal()
        if self.random.random() < 0.5:
            self.log.flush()
            self.flushed = self.end
        point = self.random.choice([0, self.log.recovery_point])
        self.log.close(clean=False)
        self.pending.clear()
        old, self.disk = self.disk, self.fresh_disk()
        old.power_cut(self.random, Path(self.disk.root))
        for other in ("a/t-0", "b/t-0"):  # as a start does that finds both
            if other != self.directory:
                shutil.rmtree(Path(self.disk.root) / other, ignore_errors=True)
        self.disk = self.disk_type(Path(self.disk.root))
        self.disk.adopt()
        self.log = self.open(clean=False, recovery_point=point)
        assert self.flushed <= self.log.end_offset <= self.end
        self.keep_up_to(self.log.end_offset)
        self.log.flush()
        self.flushed = self.end

    # Damage

    def damage(self) -> None:
        """To an index of the last segment, which is closed."""
        self.steps.append("damage")
        base = self.log.segments.active.base_offset
        for suffix in self.random.sample(INDEXES, self.random.choice([1, 2])):
            path = Path(self.disk.root) / self.directory / f"{base:020}{suffix}"
            if suffix == ".timeindex":
                self.damaged_times.add(path.name)
            if path.exists():
                damaged = self.damaged(path.read_bytes(), 8 if suffix == ".index" else 12)
                if damaged is None:
                    path.unlink()
                else:
                    path.write_bytes(damaged)

    def damaged(self, data: bytes, size: int) -> bytes | None:
        kind = self.random.choice(["middle", "end", "torn", "missing", "zeros", "empty", "long", "beginning"])
        self.steps.append(kind)
        entries = len(data) // size
        match kind:
            case "middle" if entries > 2:
                at = self.random.randrange(1, entries - 1) * size
                return data[:at] + b"\x7f" * size + data[at + size :]
            case "beginning" if entries > 2:
                return b"\x7f" * size + data[size:]
            case "end" if entries:
                return data[:-size] + b"\x7f" * size
            case "torn":
                return data[: max(len(data) - self.random.randrange(1, size), 0)]
            case "missing":
                return None
            case "zeros":
                return data + bytes(size * self.random.randrange(2, 20))
            case "empty":
                return b""
            case "long" if entries:
                return data + b"\x7f" * self.random.choice([size, 3, 40])
        return data

    def damage_while_open(self) -> None:
        """To the offset index of a segment that is not written to, and is not in memory."""
        inactive = [each for each in self.log.segments if each.indexes.offsets is None and each.size > 500]
        if not inactive or self.pending:
            return
        path = Path(self.random.choice(inactive).path(".index"))
        if path.exists():
            path.write_bytes(self.random.choice([b"\x7f" * 16, b"", path.read_bytes()[:-3]]))

    # At the end

    def check_all(self) -> None:
        while self.pending:
            self.finish_one()
        self.heal()
        for segment in self.log.segments:
            if segment is not self.log.segments.active:
                segment.release()  # or what the disk refused would not be seen to be missing
        for each in self.batches:
            self.check_read(each.first)
            self.check_read(each.last)
        times = sorted({at for each in self.batches for at in each.times if at >= 0})
        for time in times[:: max(1, len(times) // 40)]:
            self.check_search(time)
            self.check_search(time + 1)
        self.check_search(None)
        active = self.log.segments.active
        if active.indexes.times is not None and not active.indexes.times.skipped:
            self.damaged_times.discard(os.path.basename(active.path(".timeindex")))
        self.log.close()
        assert self.findings() == []

    def findings(self) -> list[Finding]:
        """A damaged time index that no search had to look at, since what it looked for lies elsewhere, is left to
        scrubbing, like that of a segment that is not written to any more."""
        places = find_partitions(REAL_FILES, os.path.join(self.disk.root, self.directory))
        found = [each for place in places for each in verify(place) if isinstance(each, Finding)]
        return [each for each in found if os.path.basename(each.path) not in self.damaged_times]


def histories(root: Path, files_type: type[Files], seeds: range, steps: int) -> Iterator[str]:
    for seed in seeds:
        run = Run(root / str(seed), files_type, seed)
        try:
            for _ in range(steps):
                run.step()
            run.check_all()
        except Exception as error:
            yield f"seed {seed}: {error!r} after {' '.join(run.steps[-12:])}"
        finally:
            shutil.rmtree(root / str(seed), ignore_errors=True)


@pytest.mark.parametrize("first", [0, 30])
def test_whatever_becomes_of_the_indexes_everything_is_found(first: int, tmp_path: Path, faulty_files: Any) -> None:
    assert list(histories(tmp_path, faulty_files, range(first, first + 30), steps=60)) == []
