"""Records cut out of batches: where every field lies, as arrays.

A batch is a chain: each record says where the next one begins. That chain is followed record by record, except through
runs of records of one size, which numpy steps over at once. Everything else (timestamps, offsets, lengths, headers) is
read for all records of many batches together. No field is copied or made into a Python object here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.pipeline.source.varints import Bytes, Ints, read_varints
from tidemark.pipeline.source.walking import Placed
from tidemark.protocol.compression import DecompressionError, decompress
from tidemark.protocol.records import HEADER_SIZE, BatchHeader, InvalidRecord

# Decompressed bytes that one group of batches may have, before the last one is added to it.
GROUP_BYTES = 16 << 20

_RUN_AFTER = 4  # so many records of one size make it worth asking for more of them at once
_RUN_FIRST = 64
_RUN_GROWTH = 8
_LENGTH_BITS = 28  # the shift of a fifth byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Payloads:
    """The records' bytes of some batches, decompressed, somewhere in one buffer."""

    data: memoryview
    headers: Sequence[BatchHeader]
    starts: Sequence[int]
    ends: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Records as positions in `data`. A length of -1 is null. All arrays have one entry per record."""

    data: memoryview
    offset: Ints
    timestamp: Ints  # milliseconds
    timestamp_type: Ints
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints
    header_count: Ints
    header_start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.offset)

    def between(self, first: int, end: int) -> Cut:
        """Only the records of offsets first..end-1."""
        inside = (self.offset >= first) & (self.offset < end)
        if inside.all():
            return self
        return Cut(
            data=self.data,
            **{name: getattr(self, name)[inside] for name in Cut.__slots__ if name != "data"},
        )


def payload_groups(data: memoryview, batches: Sequence[Placed], *, limit: int = GROUP_BYTES) -> Iterator[Payloads]:
    """Batches in groups that share a buffer: the given one if nothing is compressed, else one with all of a group."""
    if not any(header.compression for header, _ in batches):
        if batches:
            yield Payloads(
                data=data,
                headers=[header for header, _ in batches],
                starts=[at + HEADER_SIZE for _, at in batches],
                ends=[at + header.size for header, at in batches],
            )
        return
    headers: list[BatchHeader] = []
    parts: list[memoryview] = []
    total = 0
    for header, at in batches:
        headers.append(header)
        parts.append(_expanded(header, data[at + HEADER_SIZE : at + header.size]))
        total += len(parts[-1])
        if total >= limit:
            yield _joined(headers, parts)
            headers, parts, total = [], [], 0
    if headers:
        yield _joined(headers, parts)


def _expanded(header: BatchHeader, payload: memoryview) -> memoryview:
    try:
        return decompress(header.compression, payload)
    except DecompressionError as error:
        raise InvalidRecord(f"batch of base offset {header.base_offset}: {error}") from error


def _joined(headers: list[BatchHeader], parts: list[memoryview]) -> Payloads:
    ends = np.cumsum([len(part) for part in parts])
    data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
    return Payloads(data=data, headers=headers, starts=[0, *ends[:-1].tolist()], ends=ends.tolist())


def cut(payloads: Payloads) -> Cut:
    """Every record of these batches. Raises InvalidRecord where a payload is not a sequence of records."""
    try:
        return _cut(payloads)
    except IndexError as error:
        first = payloads.headers[0].base_offset
        raise InvalidRecord(f"the batches from offset {first} on hold no whole records") from error


def _cut(payloads: Payloads) -> Cut:
    data = np.frombuffer(payloads.data, np.uint8)
    headers = payloads.headers
    at = _record_positions(data, payloads)
    size, at = read_varints(data, at)
    end = at + size
    timestamp_delta, at = read_varints(data, at + 1)  # one byte of attributes, of which none are defined
    offset_delta, at = read_varints(data, at)
    key_length, key_start = read_varints(data, at)
    value_length, value_start = read_varints(data, key_start + np.maximum(key_length, 0))
    header_count, header_start = read_varints(data, value_start + np.maximum(value_length, 0))
    # Lengths are not believed: each could point outside of its record, even so far that adding it overflows.
    outside = (key_length > end - key_start) | (value_length > end - value_start) | (header_count < 0)
    outside |= (key_start > end) | (value_start > end) | (header_start > end)
    outside |= (header_count == 0) & (header_start != end)
    if outside.any():
        raise InvalidRecord(f"record {int(np.argmax(outside))} after {headers[0].base_offset}: fields exceed its size")
    counts = [header.record_count for header in headers]
    append_time = np.repeat([bool(header.timestamp_type) for header in headers], counts)
    return Cut(
        data=payloads.data,
        offset=_per_record([header.base_offset for header in headers], counts) + offset_delta,
        timestamp=np.where(
            append_time,
            _per_record([header.max_timestamp for header in headers], counts),
            _per_record([header.base_timestamp for header in headers], counts) + timestamp_delta,
        ),
        timestamp_type=append_time.astype(np.int64),
        key_start=key_start,
        key_length=key_length,
        value_start=value_start,
        value_length=value_length,
        header_count=header_count,
        header_start=header_start,
        end=end,
    )


def _per_record(values: list[int], counts: list[int]) -> Ints:
    return np.repeat(np.array(values, np.int64), counts)


def _record_positions(data: Bytes, payloads: Payloads) -> Ints:
    """Where each record of all batches begins (with its length)."""
    total = sum(header.record_count for header in payloads.headers)
    if total > len(data):  # a record has seven bytes at least: a larger count is a lie, and costs no memory
        raise InvalidRecord(f"{total} records in {len(data)} bytes")
    chain = _Chain(data, payloads.data)
    for header, start, end in zip(payloads.headers, payloads.starts, payloads.ends, strict=True):
        behind = chain.follow(start, header.record_count)
        if behind != end:
            raise InvalidRecord(f"the batch of base offset {header.base_offset} ends at {behind}, not {end}")
    return chain.positions()


class _Chain:
    """Where records begin, collected over batches: some one by one, some as runs."""

    def __init__(self, data: Bytes, view: memoryview) -> None:
        self._data = data
        self._view = view
        self._found: list[int] = []
        self._pieces: list[Ints] = []

    def positions(self) -> Ints:
        self._flush()
        return self._pieces[0] if len(self._pieces) == 1 else np.concatenate(self._pieces)

    def _flush(self) -> None:
        self._pieces.append(np.array(self._found, np.int64))
        self._found.clear()

    def follow(self, at: int, count: int) -> int:
        """Takes in the `count` records of a batch, the first at `at`. Returns where the last one ends."""
        view, keep = self._view, self._found.append
        step = alike = 0
        while count > 0:
            keep(at)
            count -= 1
            here = at
            size = view[at]
            at += 1
            if size >= 0x80:
                byte = view[at]
                at += 1
                size = size & 0x7F | (byte & 0x7F) << 7
                shift = 14
                while byte >= 0x80:
                    if shift > _LENGTH_BITS:
                        raise InvalidRecord("the length of a record is longer than five bytes")
                    byte = view[at]
                    at += 1
                    size |= (byte & 0x7F) << shift
                    shift += 7
            if size & 1:
                raise InvalidRecord("a record of negative size")
            body = at
            at += size >> 1
            if at - here != step:
                step, alike = at - here, 0
                continue
            alike += 1
            if alike >= _RUN_AFTER and count >= _RUN_FIRST:
                run = _run_length(self._data, at=here, step=step, width=body - here, most=count + 1) - 1
                self._flush()
                self._pieces.append(here + step * np.arange(1, run + 1))
                count -= run
                at = here + step * (run + 1)
                step = alike = 0
        return at


def _run_length(data: Bytes, *, at: int, step: int, width: int, most: int) -> int:
    """How many records in a row, the one at `at` included, begin with the same length: exact, not a guess, as each
    of them begins where the one before ends."""
    most = min(most, (len(data) - at) // step)
    head = data[at : at + width]
    length, tried = 1, _RUN_FIRST
    while length < most:
        upto = min(most, tried)
        rows = np.lib.stride_tricks.as_strided(data[at + length * step :], (upto - length, width), (step, 1))
        differs = (rows != head).any(axis=1)
        if differs.any():
            return length + int(np.argmax(differs))
        length, tried = upto, tried * _RUN_GROWTH
    return length
