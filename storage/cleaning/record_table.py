"""The records of a window as columns: where each lies, its offset and time, its key, and whether it is a tombstone.

Records are chained by their sizes, so the n-th of a batch is found from the one before. But all batches of a window can
be walked together: a step finds the n-th record of every batch. Where few batches are left that have so many records,
Python walks over the rest of each, which is cheaper then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.protocol.records import InvalidRecord
from tidemark.storage.cleaning.windows import Window

Column = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_TOGETHER_MIN = 24  # batches: with fewer, a step for all of them takes longer than Python for each
_VARINT_BYTES_MAX = 10


def _make_steps() -> NDArray[np.int32]:
    """By the first two bytes of a record, little end first: how far it is to the next one; 0 if two do not tell."""
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    short = 1 + (first >> 1)
    long = np.where(second < 0x80, 2 + ((first & 0x7F | second << 7) >> 1), 0)
    return np.where(first < 0x80, short, long).astype(np.int32)


_STEPS = _make_steps()
_NO_BYTES = -1


@dataclass(frozen=True, slots=True)
class RecordTable:
    batch: Column  # the index of each record's batch in the window
    first: Column  # of each batch: its first record's index here
    starts: Column  # in the window's data
    ends: Column
    offsets: Column
    timestamps: Column
    key_starts: Column
    key_lengths: Column  # negative: there is no key
    is_tombstone: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)


def read_records(window: Window, batches: Column) -> RecordTable:
    """The records of some of a window's batches. Raises InvalidRecord if they are none."""
    raw = np.frombuffer(window.data, dtype=np.uint8)
    headers = window.headers[batches]
    counts = headers["record_count"].astype(np.int64)
    limits = window.payload_ends[batches]
    first = np.concatenate(([0], np.cumsum(counts)))
    starts = _record_starts(window.data, raw, window.payload_starts[batches], counts, first)
    batch = np.repeat(np.arange(len(batches)), counts)
    limits = limits[batch]

    sizes, place = _varints(raw, starts)
    ends = place + sizes
    if (sizes <= 0).any() or (ends > limits).any():
        raise InvalidRecord("a record runs past the end of its batch")
    timestamps, place = _varints(raw, place + 1)
    offsets, place = _varints(raw, place)
    key_lengths, key_starts = _varints(raw, place)
    value_at = key_starts + np.maximum(key_lengths, 0)
    if (value_at >= ends).any():
        raise InvalidRecord("a key runs past the end of its record")
    value_lengths, place = _varints(raw, value_at)
    if (place + np.maximum(value_lengths, 0) >= ends).any():
        raise InvalidRecord("a value runs past the end of its record")
    return RecordTable(
        batch=batches[batch],
        first=first[:-1],
        starts=starts,
        ends=ends,
        offsets=offsets + headers["base_offset"].astype(np.int64)[batch],
        timestamps=timestamps + headers["base_timestamp"].astype(np.int64)[batch],
        key_starts=key_starts,
        key_lengths=key_lengths,
        is_tombstone=value_lengths == _NO_BYTES,
    )


def _record_starts(data: bytes, raw: Bytes, payload_starts: Column, counts: Column, first: Column) -> Column:
    found = np.empty(int(first[-1]), dtype=np.int64)
    order = np.argsort(-counts, kind="stable")  # batches with many records first: those that go on are a prefix
    places, slots, counts = payload_starts[order], first[:-1][order], counts[order]
    pairs = np.ndarray((len(data) - 1,), dtype="<u2", buffer=data, strides=(1,))
    step, falling = 0, -counts
    going = int(np.searchsorted(falling, -step, side="left"))  # batches with more than `step` records
    while going >= _TOGETHER_MIN:
        places = places[:going]
        found[slots[:going] + step] = places
        try:  # whether a record ends within its batch is looked at for all of them together, later
            lengths = _STEPS[pairs[places]]
        except IndexError:
            raise InvalidRecord("a batch ends before its last record") from None
        places = places + lengths if lengths.all() else _next_places(raw, places)
        step += 1
        going = int(np.searchsorted(falling, -step, side="left"))
    for index in range(going):
        _walk(data, found, int(slots[index]), place=int(places[index]), step=step, count=int(counts[index]))
    return found


def _next_places(raw: Bytes, places: Column) -> Column:
    sizes, places = _varints(raw, places)
    return places + np.maximum(sizes, 0)


def _walk(data: bytes, found: Column, slot: int, *, place: int, step: int, count: int) -> None:
    """The places of one batch's records from number `step` on."""
    places = []
    try:
        for _ in range(step, count):
            places.append(place)
            byte = data[place]
            if byte < 0x80:
                place += 1 + (byte >> 1)
                continue
            second = data[place + 1]
            if second < 0x80:
                place += 2 + ((byte & 0x7F | second << 7) >> 1)
                continue
            size, place = _long_varint(data, place)
            place += size
    except IndexError:
        raise InvalidRecord("a batch ends before its last record") from None
    found[slot + step : slot + count] = places


def _long_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1, place
        if shift > 28:
            raise InvalidRecord("the size of a record is no number")


def _varints(raw: Bytes, places: Column) -> tuple[Column, Column]:
    """The zigzag varints at these places, and the places after them."""
    if len(places) and (places.max() >= len(raw) or places.min() < 0):
        raise InvalidRecord("a record runs past the end of its batch")
    byte = raw[places]
    values = (byte & 0x7F).astype(np.int64)
    places = places + 1
    more = np.flatnonzero(byte > 0x7F)
    for count in range(1, _VARINT_BYTES_MAX):
        if not len(more):
            break
        at = places[more]
        if at.max() >= len(raw):
            raise InvalidRecord("a record runs past the end of its batch")
        byte = raw[at]
        values[more] |= (byte & 0x7F).astype(np.int64) << (7 * count)
        places[more] += 1
        more = more[byte > 0x7F]
    if len(more):
        raise InvalidRecord("a varint is longer than ten bytes")
    return ((values >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(values & 1), places
