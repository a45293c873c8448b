"""What stays of a window of batches, by Kafka's rules, and how it is written."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidemark.storage.cleaning.cleaned_segment import CleanedSegment
from tidemark.storage.cleaning.job import NO_DATA, CleaningJob
from tidemark.storage.cleaning.key_hash import KeyHash
from tidemark.storage.cleaning.key_map import KeyMap
from tidemark.storage.cleaning.record_table import RecordTable, places_of, read_records, read_table
from tidemark.storage.cleaning.remembered_sizes import RememberedSizes, offsets_of
from tidemark.storage.cleaning.transactions import TransactionPass
from tidemark.storage.cleaning.windows import CONTROL, DELETE_HORIZON, TRANSACTIONAL, Window, batch_at
from tidemark.storage.cleaning.writing import AS_IT_IS, EMPTIED, GONE, REWRITTEN, Writing

Flags = NDArray[np.bool_]

_FLAGS_MAX = 32 << 20  # bytes


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

        becomes = np.full(len(window), GONE)
        becomes[(kept == 0) & stays_empty] = EMPTIED
        becomes[kept > 0] = REWRITTEN
        becomes[(kept > 0) & (kept == window.headers["record_count"]) & ~needs_horizon] = AS_IT_IS
        self.records_read += int(window.headers["record_count"].sum())
        self.records_kept += int(kept.sum())
        Writing(self._job, window, records, keeps, needs_horizon).write(becomes, cleaned)

    def _newest(self, window: Window) -> RecordTable | None:
        """Only those records that are the last of their keys, where that is known without reading any."""
        sizes = self._sizes.take(window)
        if sizes is None or self._flags is None or window.last_offsets[-1] >= self._end_offset:
            return None
        if window.base_offsets[0] < self._flags_from:  # the log starts in the middle of a batch (DeleteRecords)
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
