"""A segment a few megabytes at a time: whole batches, checked, with all their headers in one array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.protocol.records import HEADER_SIZE, MAGIC, BatchHeader, Buffer, crc32c, payload_of, read_header
from tidemark.storage.cleaning.job import CleaningFailed
from tidemark.storage.cleaning.key_hash import PADDING
from tidemark.storage.files import Files
from tidemark.storage.scan import CRC_START, LENGTH_END

WINDOW_BYTES = 8 << 20
EXPANDED_BYTES_MAX = 16 << 20  # decompressed payloads of one window: it ends with the batch that reaches this
RECORDS_MAX = 1 << 18  # likewise: columns of a record take more memory than a small record itself
CODEC = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # KIP-534: the base timestamp is when tombstones may go

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
_HEAD = Struct(">qiibI")  # of a header: base offset, length, leader epoch, magic, CRC


@dataclass(frozen=True, slots=True)
class Window:
    data: Buffer  # batches as they are on disk, then what was compressed in them, then PADDING
    starts: NDArray[np.int64]  # of the batches
    ends: NDArray[np.int64]
    headers: NDArray[Any]
    payload_starts: NDArray[np.int64]
    payload_ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def base_offsets(self) -> NDArray[np.int64]:
        offsets: NDArray[np.int64] = self.headers["base_offset"].astype(np.int64)
        return offsets

    @property
    def last_offsets(self) -> NDArray[np.int64]:
        offsets: NDArray[np.int64] = self.base_offsets + self.headers["last_offset_delta"]
        return offsets

    @property
    def attributes(self) -> NDArray[np.int64]:
        attributes: NDArray[np.int64] = self.headers["attributes"].astype(np.int64)
        return attributes


def windows(
    files: Files,
    path: str,
    *,
    start: int,
    end: int,
    paced: Callable[[int], None],
    window_bytes: int = WINDOW_BYTES,
    expanded_bytes_max: int = EXPANDED_BYTES_MAX,
    records_max: int = RECORDS_MAX,
) -> Iterator[Window]:
    """The batches of a file between two positions. `paced` is told how much was read.

    However well they are compressed, a window takes no more memory than the limits and one batch."""
    file = files.open_to_read(path)
    try:
        position = start
        while position < end:
            data = files.read_window(file.fileno(), position=position, length=min(window_bytes, end - position))
            places = _places(data, path=path, position=position)
            if places[-1] == 0:  # one batch is larger than the window
                size = LENGTH_END + int.from_bytes(data[8:12], "big")
                if position + size > end:
                    raise _damaged(path, position, "the file ends inside a batch")
                data = files.read_window(file.fileno(), position=position, length=size)
                places = _places(data, path=path, position=position)
            paced(places[-1])
            cutting = _Cutting(path, data, places, position, expanded_bytes_max, records_max)
            yield from cutting.windows()
            position += places[-1]
    finally:
        file.close()


def _places(data: Buffer, *, path: str, position: int) -> list[int]:
    """Where whole batches begin, and at last where they end; each is checked."""
    view, places, place, unpack = memoryview(data), [0], 0, _HEAD.unpack_from
    while place + HEADER_SIZE <= len(data):
        _, length, _, magic, crc = unpack(data, place)
        stop = place + LENGTH_END + length
        if magic != MAGIC or length < HEADER_SIZE - LENGTH_END:
            raise _damaged(path, position + place, f"no batch: magic {magic}, length {length}")
        if stop > len(data):
            break
        if crc32c(view[place + CRC_START : stop]) != crc:
            raise _damaged(path, position + place, "the CRC does not match")
        places.append(stop)
        place = stop
    if place == 0 and len(data) < HEADER_SIZE:
        raise _damaged(path, position, "the file ends inside a batch header")
    return places


def _damaged(path: str, position: int, reason: str) -> CleaningFailed:
    return CleaningFailed(f"{path} is damaged at byte {position}: {reason}")


class _Cutting:
    """Of what was read at once into windows."""

    def __init__(
        self, path: str, data: Buffer, places: list[int], position: int, expanded_bytes_max: int, records_max: int
    ) -> None:
        self._path = path
        self._data = data
        self._places = places
        self._position = position  # of the data in the file
        self._expanded_bytes_max = expanded_bytes_max
        self._records_max = records_max
        self._bounds = np.array(places, dtype=np.int64)
        self._headers = unaligned(data, f"V{HEADER_SIZE}")[self._bounds[:-1]].view(HEADER)
        self._counts = self._headers["record_count"].astype(np.int64)
        self._compressed = np.flatnonzero((self._headers["attributes"] & CODEC != 0) & (self._counts > 0)).tolist()

    def windows(self) -> Iterator[Window]:
        first = 0
        while first < len(self._headers):
            stop, payloads = self._payloads(first)
            yield self._window(first, stop, payloads)
            first = stop

    def _payloads(self, first: int) -> tuple[int, dict[int, bytes]]:
        """Up to which batch a window goes that begins with the first, and what was compressed in some of them."""
        records = np.cumsum(self._counts[first:])
        stop = min(first + int(np.searchsorted(records, self._records_max)) + 1, len(self._headers))
        payloads: dict[int, bytes] = {}
        expanded_bytes = 0
        for index in self._compressed:
            if first <= index < stop:
                payloads[index] = self._expanded(index)
                expanded_bytes += len(payloads[index])
                if expanded_bytes >= self._expanded_bytes_max:
                    return index + 1, payloads
        return stop, payloads

    def _expanded(self, index: int) -> bytes:
        try:
            return bytes(payload_of(memoryview(self._data)[self._places[index] : self._places[index + 1]]))
        except ValueError as error:
            raise _damaged(self._path, self._position + self._places[index], str(error)) from error

    def _window(self, first: int, stop: int, payloads: dict[int, bytes]) -> Window:
        bounds = self._bounds[first : stop + 1] - self._places[first]
        starts, ends = bounds[:-1], bounds[1:]
        payload_starts, payload_ends = starts + HEADER_SIZE, ends.copy()
        parts, at = [memoryview(self._data)[self._places[first] : self._places[stop]]], int(ends[-1])
        for index, payload in payloads.items():
            parts.append(memoryview(payload))
            payload_starts[index - first], payload_ends[index - first] = at, at + len(payload)
            at += len(payload)
        if first == 0 and len(parts) == 1 and len(self._data) >= at + len(PADDING):
            data = self._data  # whatever follows will do
        else:
            data = b"".join([*parts, PADDING])
        return Window(data, starts, ends, self._headers[first:stop], payload_starts, payload_ends)


def unaligned(data: Buffer, dtype: str) -> NDArray[Any]:
    """Values of a type at every byte of the data: to gather or to put many of them at once, wherever they lie."""
    kind = np.dtype(dtype)
    return np.ndarray((max(len(data) - kind.itemsize + 1, 0),), dtype=kind, buffer=data, strides=(1,))


def batch_at(window: Window, index: int) -> tuple[BatchHeader, memoryview]:
    """One batch of a window."""
    batch = memoryview(window.data)[int(window.starts[index]) : int(window.ends[index])]
    return read_header(batch), batch
