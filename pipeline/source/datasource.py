"""`format("tidemark")` for Spark: a Python Data Source with the columns and options of `format("kafka")`.

Spark makes a reader in a process of its own on the driver, asks it for partitions, and sends reader and partitions to
the Python workers. So readers hold options and nothing that cannot travel; connections are made where they are used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidemark.pipeline.source.client import ReadingClient, TopicPartition
from tidemark.pipeline.source.lake import Lake, LakePart, read_part
from tidemark.pipeline.source.limiting import Limits, limited
from tidemark.pipeline.source.options import ReadOptions, read_options
from tidemark.pipeline.source.planning import Planner, Range, split
from tidemark.pipeline.source.reading import read_range
from tidemark.pipeline.source.segments import Place
from tidemark.pipeline.worker_memory import leave_out_loaded_modules

NAME = "tidemark"
_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
_HEADERS = ", headers array<struct<key: string, value: binary>>"

# An offset of a stream as Spark keeps it: {"topic": {"0": 23}}, the form of the Kafka source.
StreamOffset = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Piece(InputPartition):
    """What one task reads."""

    wanted: Range
    topic_id: bytes
    place: Place | None


@dataclass(frozen=True)
class OlderPiece(InputPartition):
    """What one task reads of the lake."""

    part: LakePart


class TidemarkDataSource(DataSource):
    """Register with `spark.dataSource.register(TidemarkDataSource)`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        with_headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return _COLUMNS + _HEADERS if with_headers else _COLUMNS

    def reader(self, schema: StructType) -> TidemarkReader:
        return TidemarkReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> TidemarkStreamReader:  # noqa: N802 — Spark's name
        return TidemarkStreamReader(read_options(self.options, streaming=True))


class TidemarkReader(DataSourceReader):
    """A batch: everything between two positions that are fixed when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        with _cluster(self._options) as cluster:
            lake = lake_of(self._options)
            planner = Planner(cluster, self._options, lake)
            selected = planner.partitions()
            ranges = planner.ranges(planner.start(selected), planner.end(selected))
            return pieces(planner, ranges, self._options, lake)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_piece(partition, self._options)


class TidemarkStreamReader(DataSourceStreamReader):
    """A stream. One of these lives on the driver as long as the query; the copies on workers only read."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        # Where the stream stands. Spark tells us after a restart, by asking for the partitions of an empty range before
        # anything else; if it does not, the query is new, and begins where its options say.
        self._position: dict[TopicPartition, int] | None = None
        self._initial: dict[TopicPartition, int] | None = None
        self._progressed_at = 0.0
        self._lake: Lake | None = None

    def _planner(self, cluster: ReadingClient) -> Planner:
        if self._lake is None:
            self._lake = lake_of(self._options)
        return Planner(cluster, self._options, self._lake)

    def initialOffset(self) -> StreamOffset:  # noqa: N802 — Spark's name
        with _cluster(self._options) as cluster:
            return to_stream(self._start(self._planner(cluster)))

    def _start(self, planner: Planner) -> dict[TopicPartition, int]:
        """Found out once: "latest" must not move between two questions."""
        if self._initial is None:
            self._initial = planner.start(planner.partitions())
        return self._initial

    def latestOffset(self) -> StreamOffset:  # noqa: N802 — Spark's name
        with _cluster(self._options) as cluster:
            planner = self._planner(cluster)
            if self._position is None:
                self._moved_to(self._start(planner))
            known = self._position or {}
            selected = planner.partitions()
            latest = {
                key: min(offset, self._options.stream_end.get(key, offset))
                for key, offset in planner.latest(selected).items()
            }
            position = {key: offset for key, offset in known.items() if key in latest}
            position |= planner.begin(key for key in selected if key not in position)
        limits = Limits(at_most=self._options.trigger_offsets_max, at_least=self._options.trigger_offsets_min)
        waited_ms = 1000 * (time.monotonic() - self._progressed_at)
        end = limited(position, latest, limits, waited_long=waited_ms >= self._options.trigger_delay_ms_max)
        gone = {key: offset for key, offset in known.items() if key not in latest}
        return to_stream(gone | end)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        first, stop = from_stream(start), from_stream(end)
        if first == stop:
            self._moved_to(stop)
            return []
        with _cluster(self._options) as cluster:
            planner = self._planner(cluster)
            there = set(planner.partitions())
            added = [key for key in stop if key not in first]
            first |= planner.begin(key for key in added if key in there)
            both = {key: offset for key, offset in first.items() if key in stop and key in there}
            planner.report_gone(first, stop, there=there)
            planned = pieces(planner, planner.ranges(both, stop), self._options, self._lake)
        self._moved_to(stop)
        return planned

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_piece(partition, self._options)

    def commit(self, end: StreamOffset) -> None:
        """Spark's checkpoint is what counts; there is nothing to do."""

    def stop(self) -> None:
        """Connections are closed after every question."""

    def _moved_to(self, position: dict[TopicPartition, int]) -> None:
        self._position = position
        self._progressed_at = time.monotonic()


def lake_of(options: ReadOptions) -> Lake | None:
    return None if options.lake is None else Lake(options.lake)


def pieces(planner: Planner, every: list[Range], options: ReadOptions, lake: Lake | None) -> list[InputPartition]:
    older = {(each.topic, each.partition): (each.first, each.end) for each in every if each.in_lake}
    ranges = [each for each in every if not each.in_lake]
    from_lake = [] if lake is None else [OlderPiece(part) for part in lake.parts(older)]
    places = planner.places({(each.topic, each.partition) for each in ranges})
    parts = split(ranges, partitions_min=options.partitions_min, records_max=options.partition_records_max)
    live = [
        Piece(
            wanted=each,
            topic_id=planner.topics[each.topic].topic_id,
            place=places.get((each.topic, each.partition)),
        )
        for each in parts
    ]
    return [*from_lake, *live]


def read_piece(piece: InputPartition | None, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    leave_out_loaded_modules()
    if piece is None:  # Spark's way to say that there are no partitions
        return iter(())
    if isinstance(piece, OlderPiece):
        return read_part(piece.part, with_headers=options.with_headers)
    assert isinstance(piece, Piece)
    return read_range(piece.wanted, options, topic_id=piece.topic_id, place=piece.place)


def to_stream(offsets: Mapping[TopicPartition, int]) -> StreamOffset:
    found: StreamOffset = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_stream(offset: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {(topic, int(partition)): at for topic, partitions in offset.items() for partition, at in partitions.items()}


def register(spark: Any) -> None:
    """Makes `spark.read.format("tidemark")` and `spark.readStream.format("tidemark")` known to a session."""
    spark.dataSource.register(TidemarkDataSource)


def _cluster(options: ReadOptions) -> ReadingClient:
    return ReadingClient(options.bootstrap, timeout_s=options.timeout_ms / 1000, security=options.security)
