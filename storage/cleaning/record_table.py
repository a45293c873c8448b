"""The records of a window as columns: where each lies, its offset and time, its key, and whether it is a tombstone.

Records are chained by their sizes, so the n-th of a batch is found from the one before. But all batches of a window can
be walked together: a step finds the n-th record of every batch. Where few batches are left that have so many records,
Python walks over the rest of each, which is cheaper then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.protocol.records import Buffer, InvalidRecord
from tidemark.storage.cleaning.windows import Window

Column = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_TOGETHER_MIN = 24  # batches: with fewer, a step for all of them takes longer than Python for each
_VARINT_BYTES_MAX = 10
_NO_BYTES = -1


def _make_steps() -> NDArray[np.int32]:
    """By the first two bytes of a record, little end first: how far it is to the next one; 0 if two do not tell."""
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    short = 1 + (first >> 1)
    long = np.where(second < 0x80, 2 + ((first & 0x7F | second << 7) >> 1), 0)
    return np.where(first < 0x80, short, long).astype(np.int32)


_STEPS = _make_steps()


@dataclass(frozen=True, slots=True)
class Places:
    """Where records lie, in the order of their offsets."""

    batch: Column  # the index of each record's batch in the window
    starts: Column  # in the window's data
    ends: Column

    def __len__(self) -> int:
        return len(self.starts)

    def only(self, which: NDArray[np.int64]) -> Places:
        return Places(self.batch[which], self.starts[which], self.ends[which])


@dataclass(frozen=True, slots=True)
class Keys:
    offsets: Column
    starts: Column
    lengths: Column  # negative: there is no key


@dataclass(frozen=True, slots=True)
class RecordTable:
    batch: Column  # these three: see Places
    starts: Column
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
    return read_table(window, find_records(window, batches))


def find_records(window: Window, batches: Column) -> Places:
    """Where the records of some of a window's batches lie."""
    raw = np.frombuffer(window.data, dtype=np.uint8)
    counts = window.headers["record_count"][batches].astype(np.int64)
    # Of each batch, where its records begin, and where the last one ends.
    first = np.concatenate(([0], np.cumsum(counts + 1)))
    bounds = _record_bounds(window.data, raw, window.payload_starts[batches], counts, first)
    is_end = np.zeros(len(bounds), dtype=np.bool_)
    is_end[first[1:] - 1] = True
    if (bounds[is_end] > window.payload_ends[batches]).any():
        raise InvalidRecord("a record runs past the end of its batch")
    at = np.flatnonzero(~is_end)
    starts = bounds[at]
    if (raw[starts] & 1).any():
        raise InvalidRecord("a record has a negative size")
    return Places(np.repeat(batches, counts), starts, bounds[at + 1])


def places_of(window: Window, sizes: NDArray[np.uint16] | NDArray[np.uint32]) -> Places:
    """Where all records of a window lie, if their sizes are known."""
    counts = window.headers["record_count"].astype(np.int64)
    ends = np.cumsum(sizes, dtype=np.int64)
    before = np.concatenate(([0], ends))[np.cumsum(counts) - counts]  # of each batch: bytes in records before it
    ends += np.repeat(window.payload_starts - before, counts)
    return Places(np.repeat(np.arange(len(window)), counts), ends - sizes, ends)


def read_keys(window: Window, places: Places) -> Keys:
    """What the first pass has to know of records."""
    raw = np.frombuffer(window.data, dtype=np.uint8)
    place = _after_varint(raw, _after_varint(raw, places.starts) + 1)  # past size, attributes and time
    deltas, place = _varints(raw, place)
    lengths, starts = _varints(raw, place)
    if (starts + np.maximum(lengths, 0) >= places.ends).any():
        raise InvalidRecord("a key runs past the end of its record")
    return Keys(window.base_offsets[places.batch] + deltas, starts, lengths)


def read_table(window: Window, places: Places) -> RecordTable:
    """All there is to know of records."""
    raw = np.frombuffer(window.data, dtype=np.uint8)
    timestamps, place = _varints(raw, _after_varint(raw, places.starts) + 1)
    offsets, place = _varints(raw, place)
    key_lengths, key_starts = _varints(raw, place)
    value_at = key_starts + np.maximum(key_lengths, 0)
    if (value_at >= places.ends).any():
        raise InvalidRecord("a key runs past the end of its record")
    value_lengths, place = _varints(raw, value_at)
    if (place + np.maximum(value_lengths, 0) >= places.ends).any():
        raise InvalidRecord("a value runs past the end of its record")
    return RecordTable(
        batch=places.batch,
        starts=places.starts,
        ends=places.ends,
        offsets=offsets + window.base_offsets[places.batch],
        timestamps=timestamps + window.headers["base_timestamp"].astype(np.int64)[places.batch],
        key_starts=key_starts,
        key_lengths=key_lengths,
        is_tombstone=value_lengths == _NO_BYTES,
    )


# Walking over records


def _record_bounds(data: Buffer, raw: Bytes, payload_starts: Column, counts: Column, first: Column) -> Column:
    """Of each batch, where its records begin and the last one ends; the batch's own begin at number `first`."""
    found = np.empty(int(first[-1]), dtype=np.int64)
    order = np.argsort(-counts, kind="stable")  # batches with many records first: those that go on are a prefix
    places, slots, counts = payload_starts[order], first[:-1][order], counts[order]
    found[slots] = places
    pairs = np.ndarray((len(data) - 1,), dtype="<u2", buffer=data, strides=(1,))
    steps = np.arange(int(counts[0]) if len(counts) else 0)
    going = np.searchsorted(-counts, -steps, side="left").tolist()  # batches with more than so many records
    step = 0
    while step < len(going) and going[step] >= _TOGETHER_MIN:
        places = places[: going[step]]
        try:  # whether a record ends within its batch is looked at for all of them together, later
            lengths = _STEPS[pairs[places]]
        except IndexError:
            raise InvalidRecord("a batch ends before its last record") from None
        places = places + lengths if lengths.all() else _next_places(raw, places)
        step += 1
        found[slots[: len(places)] + step] = places
    for index in range(going[step] if step < len(going) else 0):
        _walk(data, found, int(slots[index]), place=int(places[index]), step=step, count=int(counts[index]))
    return found


def _next_places(raw: Bytes, places: Column) -> Column:
    sizes, places = _varints(raw, places)
    return places + np.maximum(sizes, 0)


def _walk(data: Buffer, found: Column, slot: int, *, place: int, step: int, count: int) -> None:
    """The bounds of one batch's records from number `step` on."""
    places = []
    try:
        for _ in range(step, count):
            byte = data[place]
            if byte < 0x80:
                place += 1 + (byte >> 1)
            elif (second := data[place + 1]) < 0x80:
                place += 2 + ((byte & 0x7F | second << 7) >> 1)
            else:
                size, place = _long_varint(data, place)
                place += size
            places.append(place)
    except IndexError:
        raise InvalidRecord("a batch ends before its last record") from None
    found[slot + step + 1 : slot + count + 1] = places


def _long_varint(data: Buffer, place: int) -> tuple[int, int]:
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


# Varints


def _bytes_at(raw: Bytes, places: Column) -> Bytes:
    try:
        return raw[places]
    except IndexError:
        raise InvalidRecord("a record runs past the end of its batch") from None


def _after_varint(raw: Bytes, places: Column) -> Column:
    """The places after the varints at these places."""
    byte = _bytes_at(raw, places)
    if byte.max(initial=0) < 0x80:
        return places + 1
    is_long = byte > 0x7F
    places = places + 1 + is_long
    more = np.flatnonzero(is_long)
    for _ in range(2, _VARINT_BYTES_MAX + 1):
        more = more[_bytes_at(raw, places[more] - 1) > 0x7F]
        if not len(more):
            return places
        places[more] += 1
    raise InvalidRecord("a varint is longer than ten bytes")


def _varints(raw: Bytes, places: Column) -> tuple[Column, Column]:
    """The zigzag varints at these places, and the places after them."""
    byte = _bytes_at(raw, places)
    if byte.max(initial=0) < 0x80:
        small = (byte >> 1).astype(np.int64)
        return (small if not (byte & 1).any() else small ^ -(byte & 1).astype(np.int64)), places + 1
    values = (byte & 0x7F).astype(np.int64)
    places = places + 1
    more = np.flatnonzero(byte > 0x7F)
    for count in range(1, _VARINT_BYTES_MAX):
        if not len(more):
            break
        at = places[more]
        byte = _bytes_at(raw, at)
        values[more] |= (byte & 0x7F).astype(np.int64) << (7 * count)
        places[more] += 1
        more = more[byte > 0x7F]
    if len(more):
        raise InvalidRecord("a varint is longer than ten bytes")
    return ((values >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(values & 1), places
