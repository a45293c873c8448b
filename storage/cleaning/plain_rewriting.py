"""Batches that lose some of their records and are neither compressed nor get another base timestamp: most of them.

What they have in common is done for all such batches of a window at once: their headers are one array, and records that
stay side by side are one piece. What is left for each batch is to name its pieces, and a CRC when they are together.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.protocol.records import HEADER_SIZE, Buffer, crc32c
from tidemark.storage.cleaning.record_table import RecordTable
from tidemark.storage.cleaning.windows import LOG_APPEND_TIME, Window
from tidemark.storage.scan import CRC_START, LENGTH_END

_CRC = Struct(">I")
_CRC_AT = CRC_START - _CRC.size


class PlainRewriting:
    """`batches`: their numbers in the window, rising. `kept`: the records that stay, likewise."""

    def __init__(
        self, window: Window, records: RecordTable, kept: NDArray[np.int64], batches: NDArray[np.int64]
    ) -> None:
        self._next = 0
        self._view = memoryview(window.data)
        if not len(batches):
            return
        kept = kept[np.isin(records.batch[kept], batches)]
        batch, starts, ends = records.batch[kept], records.starts[kept], records.ends[kept]
        first = np.searchsorted(batch, batches)  # of each batch: its first record that stays
        headers = self._headers(window, batches, first, starts, ends, records.timestamps[kept])
        self._raw = headers.tobytes()
        self._timestamps = headers["max_timestamp"].tolist()
        self._sizes = (headers["batch_length"].astype(np.int64) + LENGTH_END).tolist()
        begins = np.ones(len(kept), dtype=np.bool_)  # a piece
        begins[1:] = starts[1:] != ends[:-1]
        begins[first] = True
        pieces = np.flatnonzero(begins)
        self._bounds = [*np.searchsorted(pieces, first).tolist(), len(pieces)]
        self._starts = starts[pieces].tolist()
        self._ends = ends[np.append(pieces[1:], len(kept)) - 1].tolist()

    @staticmethod
    def _headers(
        window: Window,
        batches: NDArray[np.int64],
        first: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        timestamps: NDArray[np.int64],
    ) -> NDArray[Any]:
        headers = window.headers[batches]  # a copy
        headers["record_count"] = np.diff(np.append(first, len(starts)))
        headers["batch_length"] = np.add.reduceat(ends - starts, first) + (HEADER_SIZE - LENGTH_END)
        is_by_producer = headers["attributes"] & LOG_APPEND_TIME == 0
        largest = np.maximum.reduceat(timestamps, first)
        headers["max_timestamp"] = np.where(is_by_producer, largest, headers["max_timestamp"])
        return headers

    def next_batch(self, parts: list[Buffer]) -> tuple[int, int]:
        """Adds the parts that make up the batch, and returns its size and its largest timestamp. Its CRC is missing."""
        number, view = self._next, self._view
        self._next += 1
        begin, end = self._bounds[number], self._bounds[number + 1]
        parts.append(self._raw[number * HEADER_SIZE : (number + 1) * HEADER_SIZE])
        for start, stop in zip(self._starts[begin:end], self._ends[begin:end], strict=True):
            parts.append(view[start:stop])
        return self._sizes[number], self._timestamps[number]


def put_crc(data: bytearray, view: memoryview, *, start: int, end: int) -> None:
    """Into the batch that lies there; `view` is of the same data."""
    _CRC.pack_into(data, start + _CRC_AT, crc32c(view[start + CRC_START : end]))
