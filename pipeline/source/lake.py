"""The older part of a topic, as a lake keeps it: Parquet files with a record per row, and its place in the topic.

Offsets name a record there as they do in the topic. So a reader goes on from the lake to the topic, and back if
retention was faster, at exactly one offset, and its position is the same kind of position all the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.pipeline.compaction import LOG, files_below, logged_files
from tidemark.pipeline.source.arrow import HEADER_TYPE, SCHEMA, SCHEMA_WITH_HEADERS, TIMESTAMP_TYPE
from tidemark.pipeline.source.client import ReadFailed, TopicPartition

PLACE = ("topic", "partition", "offset")
ROWS_PER_PIECE = 100_000
ROWS_PER_BATCH = 10_000
_KINDS = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}


class LakeChanged(ReadFailed):
    """Files that were listed are gone: the table was compacted, or emptied, since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What a part of a file holds of one partition."""

    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    path: str
    number: int
    spans: Mapping[TopicPartition, Span]

    def rows_of(self, wanted: Mapping[TopicPartition, tuple[int, int]]) -> int:
        """At most so many rows of these ranges."""
        return sum(
            span.rows
            for key, span in self.spans.items()
            if key in wanted and span.first < wanted[key][1] and span.last >= wanted[key][0]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePart:
    """What one task reads: row groups of files, and of these the rows of some ranges of offsets."""

    groups: tuple[tuple[str, tuple[int, ...]], ...]
    wanted: Mapping[TopicPartition, tuple[int, int]]


class Lake:
    """A table's files, and which offsets are where in them. The files' three columns of places are read once."""

    def __init__(self, location: str) -> None:
        """`location`: a directory of Parquet files, or a JSON file with a list of them."""
        self._location = location
        self._groups: dict[str, list[RowGroup]] = {}
        self._spans: dict[TopicPartition, Span] = {}
        self.look_again()

    def look_again(self) -> None:
        """Takes note of files that are new, or gone."""
        listed = files_of(self._location)
        self._groups = {each: self._groups[each] if each in self._groups else _row_groups(each) for each in listed}
        found: dict[TopicPartition, list[Span]] = {}
        for groups in self._groups.values():
            for group in groups:
                for key, span in group.spans.items():
                    found.setdefault(key, []).append(span)
        self._spans = {
            key: Span(
                first=min(each.first for each in spans),
                last=max(each.last for each in spans),
                rows=sum(each.rows for each in spans),
            )
            for key, spans in found.items()
        }

    def first(self, key: TopicPartition) -> int | None:
        span = self._spans.get(key)
        return None if span is None else span.first

    def end(self, key: TopicPartition) -> int | None:
        """After the last record that the lake has of a partition."""
        span = self._spans.get(key)
        return None if span is None else span.last + 1

    def first_since(self, key: TopicPartition, time_ms: int) -> int | None:
        """The first record that is not older than this."""
        offsets = [
            offset
            for groups in self._groups.values()
            for group in groups
            if key in group.spans
            for offset in _offsets_since(group, key, time_ms)
        ]
        return min(offsets, default=None)

    def parts(self, wanted: Mapping[TopicPartition, tuple[int, int]]) -> list[LakePart]:
        """All rows of these ranges, each in one part, of about equal size."""
        chosen: list[list[RowGroup]] = [[]]
        rows = 0
        for groups in self._groups.values():
            for group in groups:
                if not (count := group.rows_of(wanted)):
                    continue
                if rows and rows + count > ROWS_PER_PIECE:
                    chosen.append([])
                    rows = 0
                chosen[-1].append(group)
                rows += count
        return [LakePart(groups=_by_file(each), wanted=dict(wanted)) for each in chosen if each]


def files_of(location: str) -> list[str]:
    path = Path(location)
    if path.suffix == ".json":
        try:
            listed = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ReadFailed(f"tidemark.lake: {location}: {error}.") from None
        return [str(each) for each in listed]
    if not path.is_dir():
        raise ReadFailed(f"tidemark.lake: there is no directory {location}.")
    if (path / "_delta_log").is_dir():
        raise ReadFailed(f"tidemark.lake: {location} is a Delta table; give a JSON list of its files.")
    found = logged_files(path / LOG) if (path / LOG).is_dir() else files_below(path)
    return [str(each) for each in found]


def read_part(part: LakePart, *, with_headers: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a part, with the columns of Spark's Kafka source."""
    for path, groups in part.groups:
        file = _opened(path)
        names = [*PLACE, "timestamp", "key", "value", *(["headers"] if with_headers else [])]
        columns = _columns(file, names)
        for name in ("timestamp", "key", "value"):
            if name not in columns:
                raise ReadFailed(f"The lake has no column {name!r}: {path}. It must keep records as they came.")
        read = list(columns.values())
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, row_groups=list(groups), columns=read):
            rows = _placed(batch, path, columns)
            rows = rows.filter(_within(rows, part.wanted))
            if rows.num_rows:
                yield _as_records(rows, with_headers=with_headers)


def _opened(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise LakeChanged(f"The lake's file {path} is gone: was the table compacted, or emptied?") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise ReadFailed(f"The lake's file {path} cannot be read: {error}") from None


def _columns(file: pq.ParquetFile, names: Iterable[str]) -> dict[str, str]:
    """What the file calls these columns, as far as it has them: as we do, or as a pipeline's views do."""
    there = set(file.schema_arrow.names)
    return {name: said for name in names for said in (name, f"_{name}") if said in there}


def _row_groups(path: str) -> list[RowGroup]:
    file = _opened(path)
    columns = _columns(file, PLACE)
    made = []
    for number in range(file.num_row_groups):
        read = file.read_row_group(number, columns=list(columns.values())).combine_chunks()
        if not read.num_rows:
            continue
        rows = _placed(read.to_batches()[0], path, columns)
        counted = pa.Table.from_batches([rows]).group_by(["topic", "partition"])
        counted = counted.aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")])
        spans = {
            (each["topic"], each["partition"]): Span(
                first=each["offset_min"], last=each["offset_max"], rows=each["offset_count"]
            )
            for each in counted.to_pylist()
        }
        made.append(RowGroup(path=path, number=number, spans=spans))
    return made


def _placed(batch: pa.RecordBatch, path: str, columns: Mapping[str, str]) -> pa.RecordBatch:
    """With our names, and with the columns that a table keeps in the names of its directories (topic=orders)."""
    arrays = {name: batch.column(batch.schema.get_field_index(found)) for name, found in columns.items()}
    for name in PLACE:
        if name not in arrays:
            arrays[name] = pa.repeat(pa.scalar(_of_path(path, name)), batch.num_rows)
        arrays[name] = arrays[name].cast(_KINDS[name])
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _of_path(path: str, name: str) -> str:
    for part in Path(path).parent.parts:
        key, equals, value = part.partition("=")
        if equals and key.removeprefix("_") == name:
            return unquote(value)
    raise ReadFailed(f"The lake has no column {name!r}: {path}. It must keep the place of each record in its topic.")


def _within(rows: pa.RecordBatch, wanted: Mapping[TopicPartition, tuple[int, int]]) -> pa.Array:
    topic, partition, offset = (rows.column(rows.schema.get_field_index(name)) for name in PLACE)
    found = pa.array([False]).take(pa.array([0] * rows.num_rows, pa.int32()))
    for (name, number), (first, end) in wanted.items():
        of_partition = pc.and_(pc.equal(topic, name), pc.equal(partition, number))
        of_range = pc.and_(pc.greater_equal(offset, first), pc.less(offset, end))
        found = pc.or_(found, pc.and_(of_partition, of_range))
    return found


def _as_records(rows: pa.RecordBatch, *, with_headers: bool) -> pa.RecordBatch:
    def column(name: str, kind: pa.DataType) -> pa.Array:
        at = rows.schema.get_field_index(name)
        return pa.nulls(rows.num_rows, kind) if at < 0 else rows.column(at).cast(kind)

    columns = [
        column("key", pa.binary()),
        column("value", pa.binary()),
        column("topic", pa.string()),
        column("partition", pa.int32()),
        column("offset", pa.int64()),
        column("timestamp", TIMESTAMP_TYPE),
        pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows),
    ]
    if not with_headers:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return pa.RecordBatch.from_arrays([*columns, column("headers", HEADER_TYPE)], schema=SCHEMA_WITH_HEADERS)


def _offsets_since(group: RowGroup, key: TopicPartition, time_ms: int) -> Iterable[int]:
    file = _opened(group.path)
    columns = _columns(file, (*PLACE, "timestamp"))
    read = file.read_row_group(group.number, columns=list(columns.values())).combine_chunks()
    rows = _placed(read.to_batches()[0], group.path, columns)
    time = rows.column(rows.schema.get_field_index("timestamp")).cast(TIMESTAMP_TYPE)
    span = group.spans[key]
    new = pc.greater_equal(time.cast(pa.int64()), time_ms * 1000)
    kept = rows.filter(pc.and_(new, _within(rows, {key: (span.first, span.last + 1)})))
    found = pc.min(kept.column(kept.schema.get_field_index("offset"))).as_py()
    return () if found is None else (found,)


def _by_file(groups: list[RowGroup]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found: dict[str, list[int]] = {}
    for each in groups:
        found.setdefault(each.path, []).append(each.number)
    return tuple((path, tuple(numbers)) for path, numbers in found.items())
