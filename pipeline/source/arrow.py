"""Cut records as Arrow batches with the columns of Spark's Kafka source.

Arrow wants the bytes of a column side by side; in the log they lie between other fields. So the whole buffer is
declared a column in which every second entry is wanted, and Arrow itself takes those: one memcpy per value, and no
Python.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemark.pipeline.source.cutting import Cut
from tidemark.pipeline.source.varints import Ints, read_varints
from tidemark.protocol.records import InvalidRecord

BINARY = pa.binary()
HEADER_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP_TYPE),
    pa.field("timestampType", pa.int32()),
]
SCHEMA = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADER_TYPE)])


def record_batch(records: Cut, *, topic: str, partition: int, with_headers: bool) -> pa.RecordBatch:
    count = len(records)
    columns = [
        _blobs(records, records.key_start, records.key_length),
        _blobs(records, records.value_start, records.value_length),
        pa.repeat(pa.scalar(topic), count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(records.offset),
        pa.array(records.timestamp * 1000).cast(TIMESTAMP_TYPE),
        pa.array(records.timestamp_type.astype(np.int32)),
    ]
    if not with_headers:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return pa.RecordBatch.from_arrays([*columns, _headers(records)], schema=SCHEMA_WITH_HEADERS)


def _blobs(records: Cut, starts: Ints, lengths: Ints, *, kind: pa.DataType = BINARY) -> pa.Array:
    """The bytes at these places, which rise, as one column."""
    count = len(starts)
    null = lengths < 0
    if null.all():
        return pa.nulls(count, kind)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(records.data)]
    every = pa.Array.from_buffers(BINARY, 2 * count - 1, buffers)
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=null if null.any() else None)
    taken = every.take(wanted)
    if kind == pa.string():
        return _strings(taken)
    return taken


def _strings(column: pa.BinaryArray) -> pa.StringArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        # Java replaces what is not UTF-8, and so must we. Rare enough for a Python step per value.
        return pa.array([each.decode(errors="replace") for each in column.to_pylist()], pa.string())


def _headers(records: Cut) -> pa.Array:
    """A list per record; null where it has none, as Spark's Kafka source has it."""
    counts = records.header_count
    total = int(counts.sum())
    if total == 0:
        return pa.nulls(len(records), HEADER_TYPE)
    if total > len(records.data) // 2:
        raise InvalidRecord(f"{total} headers in {len(records.data)} bytes")
    firsts = np.cumsum(counts) - counts
    key_start, key_length, value_start, value_length = (np.empty(total, np.int64) for _ in range(4))
    data = np.frombuffer(records.data, np.uint8)
    among = np.flatnonzero(counts)
    at = records.header_start[among]
    number = 0
    while among.size:
        here = firsts[among] + number
        key_length[here], key_start[here] = length, start = read_varints(data, at)
        if (length < 0).any():
            raise InvalidRecord("a header without a key")
        if (length > records.end[among] - start).any():
            raise InvalidRecord("the key of a header exceeds its record")
        value_length[here], value_start[here] = length, start = read_varints(data, start + length)
        at = start + np.maximum(length, 0)
        if (length > records.end[among] - start).any():
            raise InvalidRecord("headers exceed the size of their record")
        number += 1
        more = counts[among] > number
        if (at[~more] != records.end[among][~more]).any():
            raise InvalidRecord("bytes follow the last header of a record")
        among, at = among[more], at[more]
    entries = pa.StructArray.from_arrays(
        [_blobs(records, key_start, key_length, kind=pa.string()), _blobs(records, value_start, value_length)],
        names=["key", "value"],
    )
    bounds = np.append(firsts, total).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), entries, type=HEADER_TYPE, mask=pa.array(counts == 0))
