"""One batch of a source for several sinks: read and parsed once, kept in memory, and written by each sink in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.pipeline.formats import REASON, good_rows
from tidemark.pipeline.graph import DEAD_LETTER_PREFIX, Graph, rule_counts
from tidemark.pipeline.progress import Judged
from tidemark.pipeline.spec import Sink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tables = Callable[["SparkSession", int], Mapping[str, "DataFrame"]]  # as a batch shall see them
Write = Callable[["DataFrame", int], None]  # a sink's own way, exactly once
Form = Callable[["DataFrame", Sink], "DataFrame"]


class SharedBatches:
    """What foreachBatch calls."""

    def __init__(
        self,
        source: TopicSource,
        *,
        graph: Graph,
        writers: Sequence[tuple[Sink, Write]],
        form: Form,
        tables: Tables,
    ) -> None:
        self._source = source
        self._graph = graph
        self._writers = writers
        self._form = form
        self._tables = tables
        self.judged: dict[int, dict[str, Judged]] = {}  # by batch and step, until they are told of

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            graph = self._graph.over(batch.sparkSession, self._given(batch, batch_id))
            views = graph.views([sink.view for sink, _ in self._writers])
            for sink, write in self._writers:
                write(self._form(views[sink.view], sink), batch_id)
            self.judged[batch_id] = {name: _counted(rows) for name, rows in graph.judged.items()}
        finally:
            batch.unpersist()

    def _given(self, batch: DataFrame, batch_id: int) -> dict[str, DataFrame]:
        name = self._source.name
        return {
            name: good_rows(batch, self._source),
            DEAD_LETTER_PREFIX + name: batch.where(f"{REASON} IS NOT NULL"),
            **self._tables(batch.sparkSession, batch_id),
        }


def _counted(judged: DataFrame) -> Judged:
    found = judged.agg(*rule_counts()).collect()[0]
    return Judged(rows=found.rows, rejected=found.rejected)
