"""Which sinks one read of a source can feed: it is read and parsed once, and every batch goes to all of them.

Spark allows it where a view has no state of its own: projections, filters, rules, and joins with tables. Then a batch
is a plain set of rows, and each sink takes its part of it, exactly once by the sink's own record of batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import READS_NOTE, Checkpoint, as_json
from tidemark.pipeline.graph import DEAD_LETTER_PREFIX, Graph
from tidemark.pipeline.repeatable import OF_CHANCE, OF_TIME, words_of
from tidemark.pipeline.spec import FileSink, Pipeline, Sink, TopicSink, TopicSource

# Nodes of a plan that look at one row at a time. A join is allowed if one of its sides is no stream.
_ROW_BY_ROW = ("Project", "Filter", "SubqueryAlias", "View", "CollectMetrics", "Generate", "EventTimeWatermark")
LEFT_NOTE = "left-reads.json"  # beside READS_NOTE
_LEAVES = ("StreamingRelationV2", "StreamingRelation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One query: a sink's own, or one that reads a source for several."""

    name: str  # of its place in the checkpoint
    sinks: tuple[Sink, ...]
    source: TopicSource | None = None  # that is shared

    @property
    def label(self) -> str:
        """For people."""
        return "+".join(self.names)

    @property
    def names(self) -> list[str]:
        return [sink.name for sink in self.sinks]

    @property
    def trigger_s(self) -> float:
        return self.sinks[0].trigger_s


def reads_of(pipeline: Pipeline, sinks: list[Sink], graph: Graph, checkpoint: Checkpoint) -> list[Read]:
    """Every sink in one of them. What was shared in earlier runs stays so: its position is that of the shared read."""
    before: Mapping[str, list[str]] = checkpoint.read_note(READS_NOTE)
    member_of = {sink: read for read, members in before.items() for sink in members}
    _require_none_is_back(sinks, _left(before, sinks, checkpoint), checkpoint)
    shared: dict[str, list[Sink]] = {}
    sources: dict[str, TopicSource] = {}
    for sink in sinks:
        source = _shareable(sink, pipeline, graph, checkpoint)
        name = member_of.get(sink.name)
        if name is None and source is not None and not checkpoint.exists(sink.name):
            name = _name(source, sink, [each for each in shared if sources[each] == source])
            if name in before:
                name = None  # a new sink of an old read starts at its own beginning
        if name is None:
            continue
        if source is None:
            raise CommandFailed(
                f"sinks.{sink.name} shared the reading of its source with other sinks, and cannot any more: its view "
                "has state now or reads another source, it has a pace of its own, or the checkpoint is no longer on a "
                "disk of this machine. Put it back as it was; or give the sink another name, and it starts anew.",
                code=ExitCode.USAGE,
            )
        shared.setdefault(name, []).append(sink)
        sources[name] = source
    made = [Read(name=name, sinks=tuple(members), source=sources[name]) for name, members in shared.items()]
    made = [each for each in made if each.name in before or _is_worth_it(each, pipeline)]
    together = {sink.name for each in made for sink in each.sinks}
    alone = [sink for sink in sinks if sink.name not in together]
    return [*made, *(Read(name=sink.name, sinks=(sink,)) for sink in alone)]


def keep_reads(reads: Sequence[Read], checkpoint: Checkpoint) -> None:
    """For later runs."""
    left = _left(checkpoint.read_note(READS_NOTE), [sink for each in reads for sink in each.sinks], checkpoint)
    checkpoint.write_note(LEFT_NOTE, left)
    shared = {each.name: each.names for each in reads if each.source is not None}
    checkpoint.write_note(READS_NOTE, shared)


def _left(before: Mapping[str, list[str]], sinks: Sequence[Sink], checkpoint: Checkpoint) -> dict[str, Any]:
    """The sinks that were taken out of a read, and where the batch ends that they may have last: it need not have been
    finished."""
    now = {sink.name for sink in sinks}
    left = checkpoint.read_note(LEFT_NOTE)
    for read, members in before.items():
        planned = checkpoint.last_planned(read)
        at = {} if planned is None else as_json(checkpoint.planned(read, planned))
        left |= {name: {"read": read, "at": at} for name in members if name not in now and at}
    return left


def _require_none_is_back(sinks: Sequence[Sink], left: Mapping[str, Any], checkpoint: Checkpoint) -> None:
    """One that comes back has missed what the others got meanwhile, or would begin again and write what it has: neither
    is done in silence."""
    for sink in sinks:
        if sink.name in left and not checkpoint.exists(sink.name):
            raise CommandFailed(
                f"sinks.{sink.name} was taken out of the pipeline while it shared the reading of its source, and may "
                f"have what was read before {json.dumps(left[sink.name]['at'])}. It cannot be put back as it was. Give "
                "it another name (and place), and it starts anew; or remove its line from "
                f"{checkpoint.path / LEFT_NOTE}, and it writes everything again.",
                code=ExitCode.USAGE,
            )


def _name(source: TopicSource, sink: Sink, there: list[str]) -> str:
    """No sink's: those have no dots in their names. Sinks with another trigger are another read's; dead letters have
    none of their own, and go with the first of their source."""
    if sink.view.startswith(DEAD_LETTER_PREFIX) and there:
        return there[0]
    return f"read.{source.name}.{sink.trigger_s:g}s"


def _is_worth_it(read: Read, pipeline: Pipeline) -> bool:
    """A sink alone has Spark's own way of writing; but behind a table it is the way to keep that table up to date."""
    return len(read.sinks) > 1 or any(pipeline.is_behind_table(sink.view) for sink in read.sinks)


def _shareable(sink: Sink, pipeline: Pipeline, graph: Graph, checkpoint: Checkpoint) -> TopicSource | None:
    """The one source that the sink could share; None if its query must be its own."""
    if not pipeline.share_reads or not checkpoint.is_local or sink.mode not in ("append", "upsert"):
        return None
    if isinstance(sink, TopicSink) and sink.rate is not None:
        return None
    if isinstance(sink, FileSink) and (not sink.is_table or sink.commit_every_s is not None):
        return None
    # A rule that holds only for a while would send a row to other sinks when a batch is tried again, or to none.
    if (OF_TIME | OF_CHANCE) & words_of(pipeline, sink):
        return None
    if isinstance(sink, FileSink) and sum(1 for each in pipeline.sinks if _table_of(each) == _table_of(sink)) > 1:
        return None  # the table's log tells queries apart, and would take the second sink's batch for the first one's
    behind = pipeline.views_behind([sink.view])
    if any(step.python is not None for step in pipeline.steps if behind & {step.name, step.rejected}):
        return None  # what a function asks of a stream, such as its time, a batch of ours may not have
    streams = {each.name: each for each in pipeline.topic_sources if not each.table}
    if sink.view.startswith(DEAD_LETTER_PREFIX):
        return streams.get(sink.view.removeprefix(DEAD_LETTER_PREFIX))
    view = graph.plan_of(sink)
    if sink.view in streams:
        return streams[sink.view]
    plan: Any = view._jdf.queryExecution().analyzed()
    leaves, names = _row_by_row(plan)
    found = [streams[name] for name in sorted(names & set(streams))]
    return found[0] if leaves == 1 and len(found) == 1 else None


def _table_of(sink: Sink) -> tuple[str, str] | None:
    return (sink.kind, sink.path) if isinstance(sink, FileSink) else None


def _row_by_row(node: Any) -> tuple[int, set[str]]:
    """How many streams a plan reads, and the names of the views it has them from; (-1, …) where there is state."""
    if not node.isStreaming():
        return 0, set()
    kind = node.nodeName()
    if kind in _LEAVES:
        return 1, set()
    children = node.children()
    found = [_row_by_row(children.apply(at)) for at in range(children.size())]
    names = {name for _, inner in found for name in inner}
    if kind == "SubqueryAlias":
        names.add(node.alias())
    allowed = kind in _ROW_BY_ROW or (kind == "Join" and sum(1 for leaves, _ in found if leaves != 0) == 1)
    if not allowed or any(leaves < 0 for leaves, _ in found):
        return -1, names
    return sum(leaves for leaves, _ in found), names
