"""Whether a batch that is tried again has the same rows as before. Where it may not have, rows must not be given to
sinks or writers by what is in them: one of these may have its part of the batch already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.spec import Pipeline, Sink, TopicSink, words_in

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
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
    """Of a stream's rows. Told by words where chance is concerned, so perhaps once too often; what a function of the
    user's does, nobody can see."""
    if pipeline.is_behind_table(sink.view) or OF_CHANCE & words_of(pipeline, sink):
        return True
    behind = pipeline.views_behind([sink.view])
    if any(step.python is not None for step in pipeline.steps if behind & {step.name, step.rejected}):
        return True
    return _looks_elsewhere(_plan(view))


def survivors_may_move(view: DataFrame, sink: TopicSink) -> bool:
    """Of records with one key, `dedupe` keeps the one that comes first, and that may be another when a batch is tried
    again, from another partition. The writer stays the same only if what such records share chooses it."""
    kept_by = _dedupe_keys(_plan(view))
    if kept_by is None:
        return False
    by = [each for each in (sink.key, sink.topic_column) if each is not None]
    return sink.key is None or not _columns_of(view, by) <= kept_by


def require_sure_division(views: Mapping[str, DataFrame], pipeline: Pipeline, reads: Iterable[Collection[str]]) -> None:
    """`views` by sink, and which sinks share a `read` each. A rule or filter that looks at a table decides anew with
    every attempt, and for every read: if the table has changed meanwhile, a row is in two sinks, or in none. Sinks of
    one view each get all of its rows; those of different views divide them."""
    if not pipeline.tables_change:
        return
    ours = {each.name for each in pipeline.topic_sources if each.table}
    view_of = {sink.name: sink.view for sink in pipeline.sinks}
    named = [sink for sink, view in views.items() if _is_chosen_by_table(_plan(view), ours)]
    if pair := _of_two_views(named, view_of):
        raise _unsure(
            pair, "a table that the SQL names", "Make it a 'type: table' source, which a batch sees always the same"
        )
    chosen = [sink for sink, view in views.items() if _is_chosen_by_table(_plan(view), ())]
    apart = [sink for read in reads for sink in chosen[:] if sink in read and not set(chosen) <= set(read)]
    if pair := _of_two_views(apart, view_of):
        raise _unsure(
            pair,
            "a 'type: table' source, which each of their queries sees at a time of its own,",
            "Let them share a read: no state, one 'trigger', no 'share_reads: false', a checkpoint on this machine",
        )


def _of_two_views(sinks: list[str], view_of: Mapping[str, str]) -> tuple[str, str] | None:
    return next(((one, two) for one in sinks for two in sinks if view_of[one] != view_of[two]), None)


def _unsure(sinks: tuple[str, str], table: str, remedy: str) -> CommandFailed:
    return CommandFailed(
        f"sinks.{sinks[0]} and sinks.{sinks[1]}: {table} decides which rows they get. If it changes meanwhile, or "
        f"before a batch is tried again, a row could be in both of them, or in none. {remedy}; or bring what decides "
        "with the records. If no such table changes while the pipeline runs, say so with 'tables_change: false'.",
        code=ExitCode.USAGE,
    )


def _plan(view: DataFrame) -> JavaObject:
    return view._jdf.queryExecution().analyzed()


def _below(plan: Any) -> list[Any]:
    """A node's children, and the plans in its expressions, as in `WHERE id IN (SELECT …)`."""
    return [each.apply(at) for each in (plan.children(), plan.subqueries()) for at in range(each.size())]


def _looks_elsewhere(plan: Any, ours: Collection[str] = ()) -> bool:
    """Does a plan read something that is no stream, such as a table that is named by its path? It may have grown.
    `ours`: views to leave out."""
    if plan.nodeName() == "SubqueryAlias" and plan.alias() in ours:
        return False
    if plan.children().isEmpty() and not plan.isStreaming() and plan.nodeName() not in _ROWS_OF_THE_PLAN:
        return True
    return any(_looks_elsewhere(each, ours) for each in _below(plan))


def _is_chosen_by_table(plan: Any, ours: Collection[str]) -> bool:
    """Does it depend on such a table whether a row of the stream is there? An outer join only adds columns to it."""
    if not plan.isStreaming():
        return False  # what the table itself is made of
    kind = plan.nodeName()
    if kind in ("Filter", "Join") and _looks_elsewhere(plan, ours) and not (kind == "Join" and _keeps_stream(plan)):
        return True
    return any(_is_chosen_by_table(each, ours) for each in _below(plan))


def _keeps_stream(join: Any) -> bool:
    kind, left, right = join.joinType().toString(), join.left(), join.right()
    return bool((kind == "LeftOuter" and left.isStreaming()) or (kind == "RightOuter" and right.isStreaming()))


def _dedupe_keys(plan: Any) -> set[int] | None:
    """Of the last `dedupe` before these rows; None if there is none."""
    if plan.nodeName() == "DeduplicateWithinWatermark":
        return _ids(plan.keys())
    found = [each for each in map(_dedupe_keys, _below(plan)) if each is not None]
    return set.intersection(*found) if found else None


def _columns_of(view: DataFrame, expressions: Collection[str]) -> set[int]:
    return _ids(_plan(view.selectExpr(*expressions)).references().toSeq())


def _ids(attributes: Any) -> set[int]:
    return {attributes.apply(at).exprId().id() for at in range(attributes.size())}
