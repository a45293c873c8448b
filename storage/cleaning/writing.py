"""What stays of a window of batches is put together, and written, at once.

Batches that stay as they are, and those that lose some of their records and are neither compressed nor get another base
timestamp, are most of them: what is written of all these is ranges of the window, in order, and ranges that touch are
one. The headers of the second kind are made as one array, and put over the old ones when the ranges are together. What
is left to do for each batch is its CRC.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.protocol.records import HEADER_SIZE, BatchHeader, Buffer, crc32c, put_varint, read_varint, repacked
from tidemark.storage.cleaning.cleaned_segment import CleanedSegment
from tidemark.storage.cleaning.job import CleaningJob
from tidemark.storage.cleaning.record_table import RecordTable
from tidemark.storage.cleaning.windows import (
    CODEC,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Window,
    batch_at,
    unaligned,
)
from tidemark.storage.scan import CRC_START, LENGTH_END

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]

# What becomes of a batch.
GONE, AS_IT_IS, REWRITTEN, EMPTIED = range(4)

_CRC_AT = CRC_START - 4
_ELSEWHERE = -1, -2  # a range that is no range of the window, and touches no other: a batch that was made anew


class Writing:
    """Of one window's batches. `keeps`: which of the records that were read stay."""

    def __init__(
        self,
        job: CleaningJob,
        window: Window,
        records: RecordTable,
        keeps: Flags,
        needs_horizon: Flags,
    ) -> None:
        self._horizon_ms = job.now_ms + job.delete_retention_ms
        self._window = window
        self._records = records
        self._kept = np.flatnonzero(keeps)
        self._needs_horizon = needs_horizon
        self._view = memoryview(window.data)

    def write(self, becomes: NDArray[Any], cleaned: CleanedSegment) -> None:
        window = self._window
        is_plain = (becomes == REWRITTEN) & (window.attributes & CODEC == 0) & ~self._needs_horizon
        stays = np.flatnonzero(becomes != GONE)
        if not len(stays):
            return
        plain = np.flatnonzero(is_plain)
        kept = self._kept[is_plain[self._records.batch[self._kept]]]
        counts = np.bincount(self._records.batch[kept], minlength=len(window))
        headers = _plain_headers(window, self._records, kept, plain, counts[plain])
        packed = self._packed(np.flatnonzero((becomes == EMPTIED) | ((becomes == REWRITTEN) & ~is_plain)))

        sizes = window.ends - window.starts
        sizes[plain] = headers["batch_length"].astype(np.int64) + LENGTH_END
        timestamps = window.headers["max_timestamp"].astype(np.int64)
        timestamps[plain] = headers["max_timestamp"]
        for at, (header, batch) in packed.items():
            sizes[at], timestamps[at] = len(batch), header.max_timestamp
        parts = self._parts(stays, is_plain, counts, kept, packed)
        ends = np.cumsum(sizes[stays])
        places = (ends - sizes[stays])[is_plain[stays]]  # of plain batches, in what is written
        columns = sizes[stays].tolist(), window.last_offsets[stays].tolist(), timestamps[stays].tolist()
        cleaned.add(_joined(parts, headers, places, ends[is_plain[stays]]), list(zip(*columns, strict=True)))

    def _parts(
        self,
        stays: Column,
        is_plain: Flags,
        counts: Column,
        kept: Column,
        packed: dict[int, tuple[BatchHeader, bytearray]],
    ) -> list[Buffer]:
        """A batch that stays is a range, its header if it is plain, and then one for each record that is kept."""
        window, plain = self._window, is_plain[stays]
        after = np.cumsum(counts[stays] + 1)
        is_record = np.ones(int(after[-1]), dtype=np.bool_)
        head_at = after - counts[stays] - 1
        is_record[head_at] = False
        starts, ends = np.empty((2, len(is_record)), dtype=np.int64)
        starts[head_at] = window.starts[stays]
        ends[head_at] = np.where(plain, window.starts[stays] + HEADER_SIZE, window.ends[stays])
        starts[is_record], ends[is_record] = self._records.starts[kept], self._records.ends[kept]
        made = head_at[np.isin(stays, list(packed))]
        starts[made], ends[made] = _ELSEWHERE
        begins = np.ones(len(starts), dtype=np.bool_)
        begins[1:] = starts[1:] != ends[:-1]
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(starts)) - 1
        view = self._view
        parts: list[Buffer] = [
            view[start:end] for start, end in zip(starts[first].tolist(), ends[last].tolist(), strict=True)
        ]
        for at, (_, batch) in zip(np.searchsorted(first, made).tolist(), packed.values(), strict=True):
            parts[at] = batch
        return parts

    # Batches that are made one by one

    def _packed(self, batches: Column) -> dict[int, tuple[BatchHeader, bytearray]]:
        if not len(batches):
            return {}
        records, kept = self._records, self._kept
        self._bounds = np.searchsorted(records.batch[kept], np.arange(len(self._window) + 1)).tolist()
        self._starts, self._ends = records.starts[kept].tolist(), records.ends[kept].tolist()
        self._timestamps = records.timestamps[kept].tolist()
        return {
            at: self._rewritten(at) if self._bounds[at] < self._bounds[at + 1] else self._emptied(at)
            for at in batches.tolist()
        }

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
        header = batch_at(self._window, at)[0]
        kept = slice(self._bounds[at], self._bounds[at + 1])
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


def _plain_headers(window: Window, records: RecordTable, kept: Column, plain: Column, counts: Column) -> NDArray[Any]:
    """The new headers, in order. Their CRCs are still missing."""
    headers = window.headers[plain]  # a copy
    if not len(plain):
        return headers
    first = np.cumsum(counts) - counts  # of each batch: its first record that is kept
    headers["record_count"] = counts
    sizes = np.add.reduceat(records.ends[kept] - records.starts[kept], first)
    headers["batch_length"] = sizes + (HEADER_SIZE - LENGTH_END)
    is_by_producer = headers["attributes"] & LOG_APPEND_TIME == 0
    largest = np.maximum.reduceat(records.timestamps[kept], first)
    headers["max_timestamp"] = np.where(is_by_producer, largest, headers["max_timestamp"])
    return headers


def _joined(parts: list[Buffer], headers: NDArray[Any], places: Column, ends: Column) -> Buffer:
    """One piece of what is written. `headers` go to `places`, over those of batches that end at `ends`."""
    if len(parts) == 1 and not len(headers):
        return parts[0]
    data = bytearray().join(parts)
    if len(headers):
        unaligned(data, f"V{HEADER_SIZE}")[places] = headers.view(f"V{HEADER_SIZE}")
        view = memoryview(data)
        crcs = [
            crc32c(view[start:end]) for start, end in zip((places + CRC_START).tolist(), ends.tolist(), strict=True)
        ]
        unaligned(data, ">u4")[places + _CRC_AT] = crcs
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
