"""The tables behind one read of several sinks: a batch that is tried again sees them as it did before.

Each of the sinks has its part of a batch or has not, when one of them fails. If a rule or a filter looks at a table,
and the table has newer values the next time, a row could go to another sink than before: then it would be in two of
them, or in none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidemark.pipeline.checkpoint import Checkpoint, tables_note
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.graph import Graph
from tidemark.pipeline.growing_table import GrowingTable, TableChanged, Version
from tidemark.pipeline.shared_batches import Tables
from tidemark.pipeline.sharing import Read
from tidemark.pipeline.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tables_of(
    read: Read,
    graph: Graph,
    pipeline: Pipeline,
    cluster: ClusterAdmin,
    checkpoint: Checkpoint,
    *,
    tell: Callable[[str], None],
) -> Tables:
    """The tables that a read's sinks look at. One sink alone has a batch or has it not, and takes them as they are."""
    wanted = pipeline.views_behind([sink.view for sink in read.sinks])
    tables = {
        each.name: GrowingTable(each, pipeline=pipeline, cluster=cluster, read_as=graph.read_as(each), tell=tell)
        for each in pipeline.topic_sources
        if each.table and each.name in wanted
    }
    if sum(1 for sink in read.sinks if pipeline.is_behind_table(sink.view)) > 1:
        return PinnedTables(tables, read=read.name, checkpoint=checkpoint).rows
    return lambda spark, _batch: {name: each.rows(spark) for name, each in tables.items()}


class PinnedTables:
    """What the tables were made of is noted in the checkpoint, before any sink has something of the batch."""

    def __init__(self, tables: Mapping[str, GrowingTable], *, read: str, checkpoint: Checkpoint) -> None:
        self._tables = tables
        self._checkpoint = checkpoint
        self._note = tables_note(read)

    def rows(self, spark: SparkSession, batch: int) -> dict[str, DataFrame]:
        noted = self._checkpoint.read_note(self._note)
        if noted.get("batch") == batch:
            return {name: self._as_before(spark, name, noted["tables"].get(name), batch) for name in self._tables}
        found = {name: each.rows(spark) for name, each in self._tables.items()}
        versions = {name: asdict(each.version()) for name, each in self._tables.items()}
        self._checkpoint.write_note(self._note, {"batch": batch, "tables": versions})
        return found

    def _as_before(self, spark: SparkSession, name: str, noted: Mapping[str, Any] | None, batch: int) -> DataFrame:
        if noted is None:  # the pipeline was changed meanwhile, and what it does with the batch is new in any case
            return self._tables[name].rows(spark)
        try:
            return self._tables[name].rows_as_of(spark, Version(**noted))
        except TableChanged:
            note = self._checkpoint.path / self._note
            raise TableChanged(
                f"Batch {batch} was begun with the table {name!r} as it was before, and its topic has no longer what "
                "it was made of (compaction, retention, or it was made anew). Some sinks may have their part of the "
                "batch; with newer values a row that has moved since would be in two of them, or in none. Remove "
                f"{note} to go on in spite of that."
            ) from None
