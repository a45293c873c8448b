"""A compacted topic as a table that grows with it: every batch adds what is new since the last one, and no more.

It lies in Spark's own storage for as long as a query runs; a query that starts reads the topic once from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.pipeline.checkpoint import as_json, positions_in
from tidemark.pipeline.cluster import ClusterAdmin, Partition
from tidemark.pipeline.formats import REASON, ReadAs, decoded, good_rows, with_metadata
from tidemark.pipeline.inputs import failing, newest_of_each_key, partitions_of, table_options
from tidemark.pipeline.spec import Pipeline, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TableChanged(Exception):
    """A table cannot be had any more as a batch has seen it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A table at one moment: the records of its topic that it was made of, and a digest of those that are in it."""

    topic_ids: Mapping[str, str]
    ends: Mapping[str, Mapping[str, int]]  # {"names": {"0": 6}}
    rows: int
    digest: int


class GrowingTable:
    def __init__(
        self,
        source: TopicSource,
        *,
        pipeline: Pipeline,
        cluster: ClusterAdmin,
        read_as: ReadAs,
        tell: Callable[[str], None],
    ) -> None:
        self._source = source
        self._pipeline = pipeline
        self._cluster = cluster
        self._read_as = read_as
        self._tell = tell
        self._rows: DataFrame | None = None
        self._ends: dict[Partition, int] = {}
        self._topic_ids: dict[str, str] = {}

    def rows(self, spark: SparkSession) -> DataFrame:
        """The newest value of each key, as of now."""
        partitions = partitions_of(self._source, self._cluster)
        ends = self._cluster.ends(partitions)
        self._begin_again_if_recreated(partitions, ends)
        if self._rows is not None and ends == self._ends:
            return self._rows
        return self._grown_to(spark, ends)

    def rows_as_of(self, spark: SparkSession, version: Version) -> DataFrame:
        """The same as it was then; asked for before any other. Raises TableChanged if the topic has no longer what it
        was made of: compaction takes older values away, and retention."""
        self._topic_ids = self._cluster.topic_ids(version.topic_ids)
        rows = self._grown_to(spark, positions_in(version.ends))
        if self.version() != version:
            raise TableChanged(self._source.name)
        return rows

    def version(self) -> Version:
        """Of the rows that were given last."""
        from pyspark.sql import functions as f

        assert self._rows is not None
        of_record = f.xxhash64("_topic", "_partition", "_offset")
        found = self._rows.agg(f.count("*").alias("rows"), f.bit_xor(of_record).alias("digest")).collect()[0]
        return Version(topic_ids=self._topic_ids, ends=as_json(self._ends), rows=found.rows, digest=found.digest or 0)

    def _grown_to(self, spark: SparkSession, ends: Mapping[Partition, int]) -> DataFrame:
        partitions = list(ends)
        lows = {each: low for each, (low, _) in self._cluster.ranges(partitions).items()}
        starts = {each: max(lows[each], self._ends.get(each, 0)) for each in partitions}
        added = self._added(spark, starts, {each: max(ends[each], starts[each]) for each in partitions})
        known = added if self._rows is None else self._rows.unionByName(added)
        # Cut off from what it was made of: a plan that grew with every batch would soon be all there is to do.
        self._rows = newest_of_each_key(known).localCheckpoint(eager=True)
        self._ends = dict(ends)
        return self._rows

    def _begin_again_if_recreated(self, partitions: list[Partition], ends: Mapping[Partition, int]) -> None:
        """Offsets of a topic that was deleted and made anew say nothing about the new one."""
        now = self._cluster.topic_ids({topic for topic, _ in partitions})
        anew = sorted(name for name, was in self._topic_ids.items() if now.get(name, was) != was)
        if not anew and any(ends.get(each, 0) < end for each, end in self._ends.items()):
            anew = sorted({topic for topic, _ in self._ends})  # its log was cut off, or its id is not told
        if anew:
            self._tell(f"sources.{self._source.name}: {', '.join(anew)} was made anew, and is read from its beginning.")
            self._rows, self._ends = None, {}
        self._topic_ids |= now  # one that is not told now was the same before

    def _added(self, spark: SparkSession, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> DataFrame:
        options = {
            **table_options(self._source, self._pipeline),
            "startingOffsets": json.dumps(as_json(starts)),
            "endingOffsets": json.dumps(as_json(ends)),
        }
        read = with_metadata(spark.read.format("kafka").options(**options).load())
        every = decoded(read, self._source, self._read_as)
        if self._source.on_malformed == "fail":
            return good_rows(failing(every), self._source)
        kept = every.localCheckpoint(eager=True)
        bad = kept.where(f"{REASON} IS NOT NULL").count()
        if bad:
            self._tell(f"sources.{self._source.name}: {bad:,} malformed records are not in the table.")
        return good_rows(kept, self._source)
