"""What a cleaning writes, held against a plain and slow reading of the rules, record by record, over random logs."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemark.protocol.records import (
    BatchHeader,
    EndTransaction,
    Record,
    build_batch,
    build_end_transaction,
    iter_batches,
    iter_records,
    read_end_transaction,
    read_header,
    repacked,
    verify_batch,
)
from tidemark.storage import CleaningFailed, Log, LogConfig, job_for, measure, swap
from tidemark.storage.cleaning import windows as windows_module
from tidemark.storage.cleaning.clean import clean
from tidemark.storage.cleaning.job import NO_DATA, CleaningJob

T0 = 1_700_000_000_000
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 7, 8, 16, 32, 64
CONFIG = LogConfig(
    segment_bytes=60_000,
    index_interval_bytes=500,
    compact=True,
    delete=False,
    file_delete_delay_ms=0,
    delete_retention_ms=3000,
    min_cleanable_dirty_ratio=0.0,
    producer_id_expiration_ms=1 << 60,
)

Batch = tuple[BatchHeader, bytes]


class History:
    """Writes what a follower may be sent: offsets with gaps, between batches and inside them, and empty batches."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.now = T0
        self.log = Log.open(str(path), config=CONFIG, clean=True, now_ms=lambda: T0)
        self.keys = self.random.choice([5, 50, 1000])
        self.sequences: dict[int, int] = {}
        self.begun: dict[int, int] = {}  # first offsets of open transactions, by producer
        self.aborted: list[tuple[int, int, int]] = []  # producer, first and last offset
        self.cleaned_up_to = 0

    def next_offset(self) -> int:
        return self.log.end_offset + self.random.choice([0, 0, 0, 1, 50])

    def write(self) -> None:
        random = self.random
        self.now += random.randrange(500)
        base = self.next_offset()
        offset, records = base, []
        for _ in range(random.choice([1, 1, 2, 10, 100, 2000])):
            records.append(self.record(offset))
            offset += random.choice([1, 1, 1, 2])
        producer = random.choice([-1, -1, 1, 2, 10, 11, 12])
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        batch = build_batch(
            records,
            base_offset=base,
            leader_epoch=0,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            compression=random.choice([0, 0, 0, 1, 2, 3, 4]),
            timestamp_type=random.choice([0, 0, 1]),
            transactional=producer >= 10,
        )
        if len(batch) > CONFIG.segment_bytes:
            return
        header = read_header(batch)
        if producer >= 0:
            self.sequences[producer] = sequence + header.last_offset_delta + 1
        if producer >= 10:
            self.begun.setdefault(producer, base)
        if producer < 0 and random.random() < 0.05:  # as a cleaning elsewhere has left it
            batch = repacked(header._replace(record_count=0, attributes=0), memoryview(b""), 0)
        self.log.append_replicated(batch)

    def record(self, offset: int) -> Record:
        random = self.random
        size = random.choice([0, 1, 20, 20, 20, 300] if random.random() < 0.99 else [20_000])
        return Record(
            offset=offset,
            timestamp=self.now + random.choice([0, 1, -1000, 5000]),
            key=None
            if random.random() < 0.03
            else b""
            if random.random() < 0.02
            else b"k%d" % random.randrange(self.keys),
            value=None if random.random() < 0.25 else random.randbytes(size),
            headers=[("h", None), ("", b"x" * random.randrange(200))] if random.random() < 0.1 else [],
        )

    def end_transaction(self) -> None:
        if not self.begun:
            return
        producer = self.random.choice(sorted(self.begun))
        commit, base = self.random.random() < 0.5, self.next_offset()
        marker = build_end_transaction(EndTransaction(producer, 0, commit, 0), timestamp=self.now)
        marker[0:8] = base.to_bytes(8, "big")
        marker[12:16] = bytes(4)
        self.log.append_replicated(marker)
        first = self.begun.pop(producer)
        if not commit:
            self.aborted.append((producer, first, base))

    def clean_and_compare(self) -> bool:
        log = self.log
        log.flush()
        self.now += self.random.choice([0, 2000, 9000])
        dirtiness = measure(log, cleaned_up_to=self.cleaned_up_to, high_watermark=log.end_offset, now_ms=self.now)
        seed, map_bytes = self.random.getrandbits(128), self.random.choice([24 * 70, 24 * 700, 1 << 20])
        job = job_for(log, dirtiness, now_ms=self.now, map_bytes=map_bytes, hash_seed=seed)
        before = {each.base_offset: batches_in(log, each.base_offset) for each in job.segments}
        cleaning = clean(job, files=log.files)
        groups = []
        try:
            while True:
                groups.append(next(cleaning))
        except StopIteration as end:
            stats = end.value
        except CleaningFailed as error:
            assert "raise log.cleaner.dedupe.buffer.size" in str(error)  # noqa: PT017
            return False
        reference = Reference(job, before, end_offset=stats.end_offset, aborted=self.aborted)
        for cleaned in groups:
            expected = [each for base in cleaned.replaced for each in reference.cleaned(before[base])]
            found = batches_in(log, cleaned.base_offset, suffix=".cleaned")
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                compare(one, other)
            swap(log, cleaned)
        self.cleaned_up_to = stats.end_offset
        return bool(groups)


def batches_in(log: Log, base_offset: int, suffix: str = "") -> list[Batch]:
    data = Path(log.directory, f"{base_offset:020}.log{suffix}").read_bytes()
    found = [(header, bytes(batch)) for header, batch in iter_batches(data)]
    assert sum(len(batch) for _, batch in found) == len(data)
    for _, batch in found:
        verify_batch(batch)
    return found


class Reference:
    def __init__(
        self,
        job: CleaningJob,
        before: dict[int, list[Batch]],
        *,
        end_offset: int,
        aborted: list[tuple[int, int, int]],
    ) -> None:
        self.job, self.end_offset, self.aborted = job, end_offset, aborted
        self.has_data: set[int] = set()
        self.last_offsets = {each.last_data_offset for each in job.last_records.values()} - {NO_DATA}
        self.newest: dict[bytes, int] = {}
        for header, batch in (each for base in sorted(before) for each in before[base]):
            if header.is_control or self.is_aborted(header):
                continue
            for record in iter_records(batch):
                if record.key is not None and job.first_dirty_offset <= record.offset < end_offset:
                    self.newest[record.key] = record.offset

    def is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            producer == header.producer_id and first <= header.base_offset and header.last_offset <= last
            for producer, first, last in self.aborted
        )

    def cleaned(self, batches: list[Batch]) -> list[tuple[BatchHeader, list[Record], bytes | None]]:
        """Of each batch that stays its header, its records and, if nothing of it changes, its bytes."""
        kept = [self.one(header, batch) for header, batch in batches]
        return [each for each in kept if each is not None]

    def one(self, header: BatchHeader, batch: bytes) -> tuple[BatchHeader, list[Record], bytes | None] | None:
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        is_past = has_horizon and header.base_timestamp <= self.job.now_ms
        is_discarded, is_empty_transaction = False, False
        if header.is_control:
            is_empty_transaction = not header.record_count
            if header.record_count:
                marker = read_end_transaction(batch)
                assert marker is not None
                is_empty_transaction = marker.producer_id not in self.has_data
                self.has_data.discard(marker.producer_id)
            is_discarded = is_empty_transaction and is_past
        elif header.is_transactional:
            is_discarded = self.is_aborted(header)
            self.has_data.add(header.producer_id)
        records = [] if is_discarded or not header.record_count else list(iter_records(batch))
        kept = [each for each in records if header.is_control or self.stays(each, is_past=is_past)]
        has_tombstone = any(
            each.value is None and each.offset < self.end_offset and not header.is_control for each in kept
        )
        needs_horizon = not has_horizon and (has_tombstone or is_empty_transaction)
        if not kept:
            return (self.emptied(header), [], None) if self.is_last_of_producer(header) else None
        if len(kept) == header.record_count and not needs_horizon:
            return header, kept, batch
        if needs_horizon:
            header = header._replace(
                attributes=header.attributes | DELETE_HORIZON,
                base_timestamp=self.job.now_ms + self.job.delete_retention_ms,
            )
        if not header.attributes & LOG_APPEND_TIME:
            header = header._replace(max_timestamp=max(each.timestamp for each in kept))
        return header._replace(record_count=len(kept)), kept, None

    def stays(self, record: Record, *, is_past: bool) -> bool:
        if record.offset >= self.end_offset:
            return True
        if record.key is None or (record.value is None and is_past):
            return False
        return record.offset >= self.newest.get(record.key, -1)

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.is_control and header.producer_id >= 0:
            last = self.job.last_records.get(header.producer_id)
            if last is not None and last.last_data_offset == NO_DATA:
                return last.epoch == header.producer_epoch
        return header.last_offset in self.last_offsets

    @staticmethod
    def emptied(header: BatchHeader) -> BatchHeader:
        return header._replace(
            attributes=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
            base_timestamp=header.max_timestamp,
            record_count=0,
        )


def compare(found: Batch, expected: tuple[BatchHeader, list[Record], bytes | None]) -> None:
    header, batch = found
    told, records, unchanged = expected
    if unchanged is not None:
        assert batch == unchanged
        return
    assert header._replace(batch_length=0, crc=0) == told._replace(batch_length=0, crc=0)
    if header.record_count:
        assert [_plain(each) for each in iter_records(batch)] == [_plain(each) for each in records]
    else:
        assert len(batch) == 61


def _plain(record: Record) -> tuple[Any, ...]:
    return record.offset, record.timestamp, record.key, record.value, [tuple(each) for each in record.headers]


@pytest.mark.parametrize("seed", range(int(os.environ.get("TIDEMARK_CLEANING_SEEDS", "6"))))
def test_what_is_written_is_what_the_rules_say(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    limits = dict(windows_module.windows.__kwdefaults__ or {})
    if seed % 2:  # windows that end in the middle of everything
        limits |= {"window_bytes": 3000, "expanded_bytes_max": 5000, "records_max": random.choice([7, 500])}
    monkeypatch.setattr(windows_module.windows, "__kwdefaults__", limits)
    history = History(tmp_path / "t-0", seed)
    compared = 0
    for _ in range(8):
        for _ in range(random.randrange(5, 30)):
            random.choices([history.write, history.end_transaction], [3, 1])[0]()
        history.log.roll()
        history.write()
        compared += history.clean_and_compare()
    assert compared
