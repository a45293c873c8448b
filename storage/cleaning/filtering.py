"""What stays of a window of batches, by Kafka's rules, and how it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.protocol.records import BatchHeader, Buffer, put_varint, read_varint, repacked
from tidemark.storage.cleaning.cleaned_segment import CleanedSegment
from tidemark.storage.cleaning.job import NO_DATA, CleaningJob
from tidemark.storage.cleaning.key_hash import KeyHash
from tidemark.storage.cleaning.key_map import KeyMap
from tidemark.storage.cleaning.plain_rewriting import PlainRewriting, put_crc
from tidemark.storage.cleaning.record_table import RecordTable, places_of, read_records, read_table
from tidemark.storage.cleaning.remembered_sizes import RememberedSizes, offsets_of
from tidemark.storage.cleaning.transactions import TransactionPass
from tidemark.storage.cleaning.windows import (
    CODEC,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Window,
    batch_at,
)

Flags = NDArray[np.bool_]

_FLAGS_MAX = 32 << 20  # bytes

# What becomes of a batch.
_GONE, _AS_IT_IS, _REWRITTEN, _EMPTIED, _PLAIN = range(5)


class Filter:
    """Copies windows, in the order of their offsets, to cleaned segments."""

    def __init__(
        self,
        job: CleaningJob,
        key_map: KeyMap,
        key_hash: KeyHash,
        sizes: RememberedSizes,
        transactions: TransactionPass,
        *,
        end_offset: int,
    ) -> None:
        """`end_offset`: as far as the map knows; what lies beyond is kept."""
        self.transactions = transactions
        self.records_read = 0
        self.records_kept = 0
        self.invalid_records = 0
        self._job = job
        self._map = key_map
        self._hash = key_hash
        self._sizes = sizes
        self._end_offset = end_offset
        # What the map was made from need not be looked up in it: a table says which of these offsets it holds.
        self._flags_from = job.first_dirty_offset
        self._flags = None
        if 0 <= end_offset - self._flags_from <= _FLAGS_MAX:
            self._flags = key_map.newest(first=self._flags_from, end=end_offset)
        last = sorted(each.last_data_offset for each in job.last_records.values() if each.last_data_offset != NO_DATA)
        self._last_offsets = np.array(last, dtype=np.int64)

    def copy(self, window: Window, cleaned: CleanedSegment) -> None:
        attributes = window.attributes
        has_horizon = attributes & DELETE_HORIZON != 0
        is_past_horizon = has_horizon & (window.headers["base_timestamp"] <= self._job.now_ms)
        is_discarded, is_emptied_marker = self._examine_transactions(window, attributes, is_past_horizon)
        stays_empty = self._is_last_of_producer(window, attributes)

        read = np.flatnonzero(~is_discarded & (window.headers["record_count"] > 0))
        records = self._newest(window) if len(read) == len(window) else None
        if records is None:
            records = read_records(window, read)
        keeps = self._keeps(window, records, is_past_horizon, is_control=attributes & CONTROL != 0)
        kept = np.bincount(records.batch[keeps], minlength=len(window))
        has_tombstones = np.zeros(len(window), dtype=np.bool_)
        # Not those that the map does not know of yet: what they delete is still there, and their time does not begin.
        is_known = records.offsets < self._end_offset
        has_tombstones[records.batch[keeps & records.is_tombstone & is_known]] = True
        needs_horizon = (has_tombstones | is_emptied_marker) & ~has_horizon

        becomes = np.full(len(window), _GONE)
        becomes[(kept == 0) & stays_empty] = _EMPTIED
        becomes[kept > 0] = _REWRITTEN
        becomes[(kept > 0) & (kept == window.headers["record_count"]) & ~needs_horizon] = _AS_IT_IS
        self.records_read += int(window.headers["record_count"].sum())
        self.records_kept += int(kept.sum())
        _Writing(self._job, window, records, keeps, read, needs_horizon, cleaned).write(becomes)

    def _newest(self, window: Window) -> RecordTable | None:
        """Only those records that are the last of their keys, where that is known without reading any."""
        sizes = self._sizes.take(window)
        if sizes is None or self._flags is None or window.last_offsets[-1] >= self._end_offset:
            return None
        counts = window.headers["record_count"].astype(np.int64)
        newest = np.flatnonzero(self._flags[offsets_of(window, counts) - self._flags_from])
        return read_table(window, places_of(window, sizes).only(newest))

    def _examine_transactions(
        self, window: Window, attributes: NDArray[np.int64], is_past_horizon: Flags
    ) -> tuple[Flags, Flags]:
        """Which batches go with all their records, and which are markers of transactions that have no data left."""
        is_discarded, is_emptied_marker = np.zeros((2, len(window)), dtype=np.bool_)
        last_offsets = window.last_offsets
        for at in np.flatnonzero(attributes & (TRANSACTIONAL | CONTROL) != 0).tolist():
            if attributes[at] & CONTROL:
                may_go = self.transactions.on_control(*batch_at(window, at))
                is_emptied_marker[at] = may_go
                is_discarded[at] = may_go and is_past_horizon[at]
            else:
                producer_id = int(window.headers["producer_id"][at])
                is_discarded[at] = self.transactions.on_data(producer_id, last_offset=int(last_offsets[at]))
        return is_discarded, is_emptied_marker

    def _is_last_of_producer(self, window: Window, attributes: NDArray[np.int64]) -> Flags:
        """Which batches tell the sequence, or if there is none the epoch, of a producer that may go on."""
        found = np.isin(window.last_offsets, self._last_offsets)
        for at in np.flatnonzero((attributes & CONTROL != 0) & (window.headers["producer_id"] >= 0)).tolist():
            last = self._job.last_records.get(int(window.headers["producer_id"][at]))
            if last is not None and last.last_data_offset == NO_DATA:
                found[at] = last.epoch == window.headers["producer_epoch"][at]
        return found

    def _keeps(self, window: Window, records: RecordTable, is_past_horizon: Flags, *, is_control: Flags) -> Flags:
        is_later = records.offsets >= self._end_offset
        has_key = records.key_lengths >= 0
        asked = np.flatnonzero(has_key & ~is_later & ~is_control[records.batch])
        is_newest = np.zeros(len(records), dtype=np.bool_)
        if self._flags is not None:
            is_dirty = records.offsets[asked] >= self._flags_from
            dirty, asked = asked[is_dirty], asked[~is_dirty]
            is_newest[dirty] = self._flags[records.offsets[dirty] - self._flags_from]
        if len(asked):
            hashes = self._hash(window.data, records.key_starts[asked], records.key_lengths[asked])
            is_newest[asked] = records.offsets[asked] >= self._map.get(hashes)
        is_newest &= ~(records.is_tombstone & is_past_horizon[records.batch])
        keeps = is_newest | is_later | is_control[records.batch]
        self.invalid_records += int(np.count_nonzero(~has_key & ~keeps))
        return keeps


class _Writing:
    """Of one window's batches."""

    def __init__(
        self,
        job: CleaningJob,
        window: Window,
        records: RecordTable,
        keeps: Flags,
        read: NDArray[Any],
        needs_horizon: Flags,
        cleaned: CleanedSegment,
    ) -> None:
        self._horizon_ms = job.now_ms + job.delete_retention_ms
        self._window = window
        self._records = records
        self._kept = np.flatnonzero(keeps)
        self._read = read
        self._needs_horizon = needs_horizon
        self._cleaned = cleaned
        self._view = memoryview(window.data)

    def write(self, becomes: NDArray[Any]) -> None:
        """All that stays of the window is put together, and written, at once."""
        window = self._window
        is_plain = (becomes == _REWRITTEN) & (window.attributes & CODEC == 0) & ~self._needs_horizon
        plain = PlainRewriting(window, self._records, self._kept, np.flatnonzero(is_plain))
        if (is_plain != (becomes == _REWRITTEN)).any():
            self._prepare_records()
        becomes = np.where(is_plain, _PLAIN, becomes)
        timestamps = window.headers["max_timestamp"].tolist()
        starts, ends = window.starts.tolist(), window.ends.tolist()
        parts: list[Buffer] = []
        batches: list[tuple[int, int, int]] = []  # size, last offset, largest timestamp
        without_crc: list[tuple[int, int]] = []
        run_start = run_end = size = 0  # of batches that stay as they are, side by side; of all
        stays = np.flatnonzero(becomes != _GONE)
        for at, last_offset, fate in zip(
            stays.tolist(), window.last_offsets[stays].tolist(), becomes[stays].tolist(), strict=True
        ):
            if fate == _AS_IT_IS:
                batches.append((ends[at] - starts[at], last_offset, timestamps[at]))
                size += ends[at] - starts[at]
                if starts[at] != run_end:
                    if run_end > run_start:
                        parts.append(self._view[run_start:run_end])
                    run_start = starts[at]
                run_end = ends[at]
                continue
            if run_end > run_start:
                parts.append(self._view[run_start:run_end])
            run_start = run_end = 0
            if fate == _PLAIN:
                packed_size, timestamp = plain.next_batch(parts)
                without_crc.append((size, size + packed_size))
            else:
                header, packed = self._emptied(at) if fate == _EMPTIED else self._rewritten(at)
                parts.append(packed)
                packed_size, timestamp = len(packed), header.max_timestamp
            batches.append((packed_size, last_offset, timestamp))
            size += packed_size
        if run_end > run_start:
            parts.append(self._view[run_start:run_end])
        self._cleaned.add(_joined(parts, without_crc), batches)

    def _prepare_records(self) -> None:
        """For batches that are rewritten one by one."""
        records, kept = self._records, self._kept
        self._row = {batch: row for row, batch in enumerate(self._read.tolist())}
        self._bounds = [*np.searchsorted(records.batch[kept], self._read).tolist(), len(kept)]
        self._starts, self._ends = records.starts[kept].tolist(), records.ends[kept].tolist()
        self._timestamps = records.timestamps[kept].tolist()

    def _emptied(self, at: int) -> tuple[BatchHeader, bytearray]:
        """Nothing but the header: it tells the sequence, the epoch and the offsets."""
        header = batch_at(self._window, at)[0]
        header = header._replace(
            attributes=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
            base_timestamp=header.max_timestamp,
            record_count=0,
        )
        return header, repacked(header, memoryview(b""), 0)

    def _rewritten(self, at: int) -> tuple[BatchHeader, bytearray]:
        header, row = batch_at(self._window, at)[0], self._row[at]
        kept = slice(self._bounds[row], self._bounds[row + 1])
        places = zip(self._starts[kept], self._ends[kept], strict=True)
        attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
        parts: list[bytes | memoryview]
        if self._needs_horizon[at]:
            shift = base_timestamp - self._horizon_ms
            parts = [_rebased(self._view[start:end], shift) for start, end in places]
            attributes, base_timestamp = attributes | DELETE_HORIZON, self._horizon_ms
        else:
            parts = [self._view[start:end] for start, end in places]
        if not attributes & LOG_APPEND_TIME:
            max_timestamp = max(self._timestamps[kept])
        header = header._replace(
            attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=len(parts)
        )
        return header, repacked(header, memoryview(b"".join(parts)), attributes & CODEC)


def _joined(parts: list[Buffer], without_crc: list[tuple[int, int]]) -> Buffer:
    """One piece of what is written. `without_crc`: where the batches lie in it that still need theirs."""
    if len(parts) == 1 and not without_crc:
        return parts[0]
    data = bytearray().join(parts)
    view = memoryview(data)
    for start, end in without_crc:
        put_crc(data, view, start=start, end=end)
    return data


def _rebased(record: memoryview, shift: int) -> bytes:
    """The record in a batch whose base timestamp is less by `shift`: it keeps its time."""
    _, begin = read_varint(record, 0)
    delta, rest = read_varint(record, begin + 1)
    body = bytearray(record[begin : begin + 1])
    put_varint(body, delta + shift)
    body += record[rest:]
    sized = bytearray()
    put_varint(sized, len(body))
    return bytes(sized + body)
