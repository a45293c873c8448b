"""A start that clears up after a kill is killed itself, at every step: the one after it finds a sound log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemark.protocol.records import (
    EndTransaction,
    Record,
    build_batch,
    build_end_transaction,
    iter_records,
    read_header,
)
from tidemark.storage import Files, Log, LogConfig, job_for, leftovers, measure, swap
from tidemark.storage.checking import Finding, Known, check_segments, segment_files
from tidemark.storage.cleaning.clean import clean

T0 = 1_700_000_000_000
RECORDS = 90
CONFIG = LogConfig(
    segment_bytes=1500, index_interval_bytes=100, compact=True, delete=False, file_delete_delay_ms=60_000
)


class Killed(BaseException):
    pass


class KilledAtChange(Files):
    """Ends the process at the n-th change of a name."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _count(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self._count()
        super().remove(path)


def fill(log: Log) -> dict[bytes, bytes]:
    """Times go up and down, and every third record is of a transaction that is aborted."""
    last = {}
    for number in range(0, RECORDS, 3):
        key, value = b"key%d" % (number % 8), b"%d" % number * 8
        _append(log, build_batch([Record(timestamp=T0 + number * 37 % 100, key=key, value=value)]))
        last[key] = value
        record = Record(timestamp=T0 + 200 - number, key=key, value=b"aborted")
        options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number // 3}
        _append(log, build_batch([record], transactional=True, **options))
        _append(log, build_end_transaction(EndTransaction(7, 0, False, 0), timestamp=T0))
    log.flush()
    return last


def _append(log: Log, batch: bytearray) -> None:
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)


def left_by_a_swap(origin: Path, root: Path) -> Iterator[Path]:
    """What a kill in the middle of it leaves, for every step."""
    for step in range(1000):
        state = root / f"swap-{step}"
        shutil.copytree(origin, state)
        files = KilledAtChange(1 << 30)
        log = Log.open(str(state), config=CONFIG, files=files, clean=False, recovery_point=RECORDS, now_ms=lambda: T0)
        log.flush()
        dirtiness = measure(log, cleaned_up_to=0, high_watermark=log.end_offset, now_ms=T0)
        groups = list(clean(job_for(log, dirtiness, now_ms=T0, map_bytes=1 << 20, hash_seed=1), files=files))
        files.left = step
        try:
            swap(log, groups[1])
        except Killed:
            yield state
        else:
            return


def test_a_start_that_is_killed_at_any_step_is_repeated_by_the_next(
    tmp_path: Path, open_log: Any, read_batches: Any
) -> None:
    log = open_log("origin-0", config=CONFIG)
    last = fill(log)
    log.close(clean=False)
    states = list(left_by_a_swap(tmp_path / "origin-0", tmp_path))
    assert len(states) > 10
    for state in states:
        step, is_over = 0, False
        while not is_over:
            trial = tmp_path / "t-0"
            shutil.copytree(state, trial)
            try:
                leftovers.clear(KilledAtChange(step), str(trial))
                is_over = True
            except Killed:
                step += 1
            leftovers.clear(Files(), str(trial))
            findings = list(_findings(trial))
            assert findings == [], f"{state.name}, then killed at step {step}"
            if is_over:
                assert _committed(open_log, read_batches, trial.name) == last
            shutil.rmtree(trial)


def _findings(path: Path) -> Iterator[Finding]:
    files = Files()
    for each in check_segments(files, str(path), segment_files(files, str(path)), Known(compacted=True)):
        if isinstance(each, Finding):
            yield each


def _committed(open_log: Any, read_batches: Any, name: str) -> dict[bytes | None, bytes | None]:
    log = open_log(name, config=CONFIG, clean=False, recovery_point=RECORDS)
    assert log.end_offset == RECORDS
    aborted = {each.first_offset for each in log.aborted_transactions(from_offset=0, up_to=RECORDS)}
    batches = [(header, batch) for header, batch in read_batches(log) if not header.is_control]
    log.close(clean=False)
    kept = (batch for header, batch in batches if header.base_offset not in aborted)
    return {record.key: record.value for batch in kept for record in iter_records(batch)}
