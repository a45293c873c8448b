"""Random histories of a compacted log: keys, tombstones, transactions, restarts, crashes in the middle of a cleaning.

A reader from zero sees the last committed value of every key; whatever is there is what was written at that offset;
nothing comes back that was gone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tidemark.protocol.records import (
    EndTransaction,
    Record,
    build_batch,
    build_end_transaction,
    iter_batches,
    iter_records,
    read_header,
)
from tidemark.storage import CleaningFailed, Files, Log, LogConfig, job_for, measure, swap
from tidemark.storage.cleaning.clean import clean

T0 = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=12_000,
    index_interval_bytes=200,
    compact=True,
    delete=False,
    file_delete_delay_ms=0,
    delete_retention_ms=5000,
    min_cleanable_dirty_ratio=0.0,
    producer_id_expiration_ms=1 << 60,
)


class Crash(BaseException):
    """The process ends here."""


class CrashingFiles(Files):
    """Ends the process at the n-th change of the file system from now."""

    def __init__(self) -> None:
        self.left: int | None = None

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        if self.left == 0:  # half of it is written
            os.write(fd, memoryview(data)[: len(data) // 2])
        self._count()
        return os.write(fd, data)

    def open_descriptor(self, path: str, flags: int) -> int:
        self._count()
        return super().open_descriptor(path, flags)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def fdatasync(self, fd: int) -> None:
        self._count()
        os.fdatasync(fd)


class History:
    def __init__(self, root: Path, seed: int) -> None:
        self.random = Random(seed)
        self.files = CrashingFiles()
        self.path = str(root / "t-0")
        self.now_ms = T0
        self.written: dict[int, tuple[bytes, bytes | None]] = {}  # committed, by offset
        self.newest: dict[bytes, int] = {}
        self.gone: set[int] = set()  # offsets that a reader no longer found
        self.open_transactions: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        self.sequences: dict[int, int] = {}
        self.cleaned_up_to = 0
        self.log = self.open(clean=True)

    def open(self, *, clean: bool) -> Log:
        return Log.open(
            self.path,
            config=CONFIG,
            files=self.files,
            clean=clean,
            now_ms=lambda: self.now_ms,
            cleaned_up_to=self.cleaned_up_to,
        )

    def step(self) -> None:
        self.now_ms += self.random.randint(0, 500)
        choices: list[tuple[Callable[[], None], int]] = [
            (self.write, 12),
            (self.write_in_transaction, 6),
            (self.end_transaction, 4),
            (self.clean, 2),
            (self.reopen, 1),
            (self.crash_while_cleaning, 1),
        ]
        self.random.choices([each for each, _ in choices], [weight for _, weight in choices])[0]()

    # Writing

    def records(self) -> list[Record]:
        count = self.random.choice([1, 1, 2, 5, 30])
        return [
            Record(
                timestamp=self.now_ms + self.random.randint(-100, 100),
                key=b"key%d" % self.random.randrange(12) + b"k" * self.random.choice([0, 1, 2, 3, 4, 280]),
                value=None if self.random.random() < 0.2 else b"v%d" % self.random.randrange(10**6),
                headers=[("h", b"x")] if self.random.random() < 0.2 else [],
            )
            for _ in range(count)
        ]

    def append(self, records: list[Record], *, producer_id: int, transactional: bool) -> int:
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            compression=self.random.randrange(5),
            transactional=transactional,
            timestamp_type=self.random.choice([0, 0, 1]),
        )
        appended = self.log.append(batch, read_header(batch), leader_epoch=0, now_ms=self.now_ms)
        assert not appended.duplicate
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
        return appended.base_offset

    def write(self) -> None:
        records = self.records()
        base = self.append(records, producer_id=self.random.choice([-1, 1, 2]), transactional=False)
        self.note((base + at, record.key or b"", record.value) for at, record in enumerate(records))

    def note(self, records: Iterator[tuple[int, bytes, bytes | None]]) -> None:
        for offset, key, value in records:
            self.written[offset] = key, value
            self.newest[key] = max(offset, self.newest.get(key, -1))

    def write_in_transaction(self) -> None:
        producer_id = self.random.choice([10, 11, 12])
        records = self.records()
        base = self.append(records, producer_id=producer_id, transactional=True)
        found = [(base + at, record.key or b"", record.value) for at, record in enumerate(records)]
        self.open_transactions.setdefault(producer_id, []).extend(found)

    def end_transaction(self) -> None:
        if not self.open_transactions:
            return
        producer_id = self.random.choice(sorted(self.open_transactions))
        commit = self.random.random() < 0.5
        marker = build_end_transaction(EndTransaction(producer_id, 0, commit, 0), timestamp=self.now_ms)
        self.log.append(marker, read_header(marker), leader_epoch=0, now_ms=self.now_ms)
        records = self.open_transactions.pop(producer_id)
        if commit:
            self.note(iter(records))

    # Cleaning

    def clean(self) -> None:
        self.now_ms += self.random.choice([0, 3000, 9000])
        self.log.flush()
        dirtiness = measure(
            self.log, cleaned_up_to=self.cleaned_up_to, high_watermark=self.log.end_offset, now_ms=self.now_ms
        )
        job = job_for(
            self.log,
            dirtiness,
            now_ms=self.now_ms,
            map_bytes=self.random.choice([24 * 64, 1 << 20]),
            hash_seed=self.random.getrandbits(128),
        )
        cleaning = clean(job, files=self.files)
        try:
            while True:
                swap(self.log, next(cleaning))
        except StopIteration as end:
            self.cleaned_up_to = end.value.end_offset
        except CleaningFailed as error:
            if "raise log.cleaner.dedupe.buffer.size" not in str(error):
                raise

    def crash_while_cleaning(self) -> None:
        self.log.flush()
        recovery_point = self.log.recovery_point
        self.files.left = self.random.randrange(60)
        try:
            self.clean()
        except Crash:
            pass
        finally:
            self.files.left = None
        self.log.fail("the process is gone")
        self.log = Log.open(
            self.path,
            config=CONFIG,
            files=self.files,
            clean=False,
            now_ms=lambda: self.now_ms,
            recovery_point=recovery_point,
        )
        strays = [name for name in os.listdir(self.path) if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert strays == []

    def reopen(self) -> None:
        self.log.close()
        if self.random.random() < 0.5:  # what producers did last must be in the batches
            for name in os.listdir(self.path):
                if name.endswith((".snapshot", ".index", ".timeindex")):
                    os.unlink(os.path.join(self.path, name))
        self.log = self.open(clean=True)

    # What must be so

    def check(self) -> None:
        found = dict(self.read_committed())
        for offset, content in found.items():
            assert self.written[offset] == content
            assert offset not in self.gone, "a record came back"
        self.gone |= self.written.keys() - found.keys() - self.undecided()
        limit = self.log.last_stable_offset(self.log.end_offset)
        for key, offset in self.newest.items():
            if offset < limit and self.written[offset][1] is not None:
                assert offset in found, f"the last value of {key!r} is gone"
        seen = dict(content for _, content in sorted(found.items()))
        for key, value in seen.items():
            if self.newest[key] < limit:
                assert value == self.written[self.newest[key]][1], "a value came back that was replaced or deleted"
        for producer_id, sequence in self.sequences.items():
            state = self.log.producer(producer_id)
            assert state is not None
            assert state.next_sequence == sequence

    def undecided(self) -> set[int]:
        """Committed, but behind a transaction that is open still."""
        limit = self.log.last_stable_offset(self.log.end_offset)
        return {offset for offset in self.written if offset >= limit}

    def read_committed(self) -> Iterator[tuple[int, tuple[bytes, bytes | None]]]:
        limit = self.log.last_stable_offset(self.log.end_offset)
        offset, last = self.log.start_offset, -1
        while offset < limit:
            slices = self.log.read(offset=offset, limit_bytes=self.random.choice([100, 2000, 1 << 20]), up_to=limit)
            if not slices:
                return
            aborted = {
                (each.producer_id, each.first_offset, each.last_offset) for each in self.log.aborted_in(offset, slices)
            }
            for header, batch in (each for part in slices for each in _batches(part)):
                assert header.base_offset > last
                last, offset = header.last_offset, header.next_offset
                is_aborted = header.is_transactional and any(
                    producer_id == header.producer_id and first <= header.base_offset <= end
                    for producer_id, first, end in aborted
                )
                if header.is_control or is_aborted:
                    continue
                for record in iter_records(batch):
                    yield record.offset, (record.key or b"", record.value)


def _batches(part):
    return iter_batches(os.pread(part.file.fileno(), part.length, part.position))


@pytest.mark.parametrize("seed", range(int(os.environ.get("TIDEMARK_CLEANING_SEEDS", "6"))))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(150):
        history.step()
        history.check()
    assert len(history.gone) > 100


def test_a_crash_at_every_step_of_a_cleaning_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    history = History(_made(tmp_path / "origin"), 77)
    for _ in range(120):
        history.random.choice([history.write, history.write_in_transaction, history.end_transaction])()
    history.log.flush()
    point = history.log.recovery_point
    for step in range(10_000):
        copy = str(tmp_path / "copy" / "t-0")
        shutil.copytree(history.path, copy)
        trial = Trial(history, copy, point)
        ended = trial.clean_until(step)
        trial.check_again()
        shutil.rmtree(tmp_path / "copy")
        if ended:
            assert step > 30
            return


class Trial(History):
    """Another directory with the same history."""

    def __init__(self, origin: History, path: str, recovery_point: int) -> None:
        for name, value in vars(origin).items():
            setattr(self, name, value)
        self.path, self.point, self.gone = path, recovery_point, set()
        self.random, self.files = Random(5), CrashingFiles()
        self.log = self.reopened()

    def reopened(self) -> Log:
        return Log.open(
            self.path,
            config=CONFIG,
            files=self.files,
            clean=False,
            now_ms=lambda: self.now_ms,
            recovery_point=self.point,
        )

    def clean_until(self, step: int) -> bool:
        self.log.flush()
        self.files.left = step
        try:
            self.clean()
        except Crash:
            return False
        finally:
            self.files.left = None
        return True

    def check_again(self) -> None:
        self.log.fail("the process is gone")
        self.log = self.reopened()
        self.check()
        self.log.close(clean=False)


def _made(path: Path) -> Path:
    path.mkdir()
    return path
