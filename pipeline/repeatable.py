"""Whether a batch that is tried again has the same rows as before. Where it may not have, rows must not be given to
sinks or writers by what is in them: one of these may have its part of the batch already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.pipeline.spec import Pipeline, Sink, TopicSink, words_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A stream fixes the time of its batches in its checkpoint; rows of ours, outside of a stream, would not have it.
OF_TIME = frozenset({"current_timestamp", "now", "localtimestamp", "current_date", "curdate", "current_time"})
OF_CHANCE = frozenset(
    {
        "rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "tablesample",
        "monotonically_increasing_id", "spark_partition_id", "reflect", "java_method", "try_reflect",
    }
)  # fmt: skip
_ROWS_OF_THE_PLAN = ("LocalRelation", "OneRowRelation", "Range")


def words_of(pipeline: Pipeline, sink: Sink) -> set[str]:
    """All words of the SQL that makes a sink's rows, in small letters."""
    if isinstance(sink, TopicSink):
        own = words_in(sink.key, sink.value, sink.headers, sink.timestamp)
    else:
        own = words_in(sink.order_by, sink.delete_when)
    return pipeline.words_behind([sink.view]) | own


def may_differ(view: DataFrame, sink: Sink, pipeline: Pipeline) -> bool:
    """Of a stream's rows. Told by words where chance is concerned, so perhaps once too often."""
    if pipeline.is_behind_table(sink.view) or OF_CHANCE & words_of(pipeline, sink):
        return True
    return _looks_elsewhere(view._jdf.queryExecution().analyzed())


def _looks_elsewhere(plan: Any) -> bool:
    """Does a plan read something that is no stream, such as a table that is named by its path? It may have grown."""
    children = plan.children()
    if children.isEmpty() and not plan.isStreaming() and plan.nodeName() not in _ROWS_OF_THE_PLAN:
        return True
    inner = plan.subqueries()  # those in expressions, as in `WHERE id IN (SELECT …)`
    below = [each.apply(at) for each in (children, inner) for at in range(each.size())]
    return any(_looks_elsewhere(each) for each in below)
