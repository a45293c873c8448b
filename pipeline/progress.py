"""What Spark tells of a finished batch, as a value, and as a line that a person can follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemark.pipeline.checkpoint import furthest_behind, positions_in
from tidemark.pipeline.cluster import Partition
from tidemark.pipeline.lag import records_behind

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LARGE_BACKLOG_BATCHES = 2
SECONDS_WORTH_TELLING = 5
SOURCE_PREFIX, RULES_PREFIX = "source:", "rules:"  # of the names that counts travel by


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Of a step with rules: how many rows there were, and how many broke one."""

    rows: int
    rejected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    sink: str
    batch: int
    at: float  # seconds since 1970, when the batch began
    rows: int
    rows_per_second: float
    batch_seconds: float
    lag: int  # to the log's end, as it was when the batch was told of
    state_rows: int
    state_bytes: int
    malformed: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)  # records with fields that the schema does not name
    unknown_fields: tuple[str, ...] = ()  # some of those
    judged: Mapping[str, Judged] = field(default_factory=dict)  # by step
    starts: Mapping[Partition, int] = field(default_factory=dict)
    positions: Mapping[Partition, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Every offset of the batch has brought a row, so nothing of it can be lost: what was deleted a moment ago, the
        connector's consumer may have had in memory already."""
        return self.rows == sum(end - self.starts.get(partition, 0) for partition, end in self.positions.items())


ProgressKey = tuple[str, int, str]  # run, batch, and when


def key_of(reported: Mapping[str, Any]) -> ProgressKey:
    return reported["runId"], reported["batchId"], reported["timestamp"]


def unread(query: StreamingQuery, last_read: ProgressKey | None) -> list[dict[str, Any]]:
    """What Spark has told since then, the oldest first. Spark keeps the last hundred, and makes a report's JSON when
    it is asked for: from the newest backwards, it is asked for new ones only."""
    kept = query._jsq.recentProgress()
    found: list[dict[str, Any]] = []
    for each in reversed(kept):
        content = json.loads(each.json())
        if key_of(content) == last_read:
            break
        found.append(content)
    return found[::-1]


def read_progress(sink: str, reported: Mapping[str, Any], *, ends: Mapping[Partition, int]) -> Progress:
    """From the JSON of Spark's StreamingQueryProgress. Its own latestOffset is where the batch was planned to end, so
    lag is counted to `ends`, where the log ends."""
    starts: dict[Partition, int] = {}
    positions: dict[Partition, int] = {}
    for source in reported.get("sources", ()):
        starts = furthest_behind(starts, positions_in(_offsets(source.get("startOffset"))))
        positions = furthest_behind(positions, positions_in(_offsets(source.get("endOffset"))))
    operators = reported.get("stateOperators", ())
    observed = (reported.get("observedMetrics") or {}).items()
    of_sources = {name.removeprefix(SOURCE_PREFIX): each for name, each in observed if name.startswith(SOURCE_PREFIX)}
    of_rules = {name.removeprefix(RULES_PREFIX): each for name, each in observed if name.startswith(RULES_PREFIX)}
    return Progress(
        sink=sink,
        batch=int(reported["batchId"]),
        at=datetime.fromisoformat(reported["timestamp"]).timestamp(),
        rows=int(reported.get("numInputRows") or 0),
        rows_per_second=float(reported.get("processedRowsPerSecond") or 0),
        batch_seconds=float((reported.get("durationMs") or {}).get("triggerExecution", 0)) / 1000,
        lag=records_behind(positions, {each: end for each, end in ends.items() if each in positions}),
        state_rows=sum(int(each.get("numRowsTotal", 0)) for each in operators),
        state_bytes=sum(int(each.get("memoryUsedBytes", 0)) for each in operators),
        malformed={name: int(counts.get("malformed") or 0) for name, counts in of_sources.items()},
        unknown={name: int(counts.get("unknown") or 0) for name, counts in of_sources.items()},
        unknown_fields=tuple(
            sorted({each["unknown_field"] for each in of_sources.values() if each.get("unknown_field")})
        ),
        judged={
            name: Judged(rows=int(each.get("rows") or 0), rejected=int(each.get("rejected") or 0))
            for name, each in of_rules.items()
        },
        starts=starts,
        positions=positions,
    )


def _offsets(reported: object) -> object:
    return json.loads(reported) if isinstance(reported, str) else reported


def time_left(progress: Progress) -> str:
    """For a backlog of more than a few such batches; it does not know of what is still to come."""
    if not progress.rows_per_second or progress.lag <= LARGE_BACKLOG_BATCHES * progress.rows:
        return ""
    seconds = progress.lag / progress.rows_per_second
    if seconds < SECONDS_WORTH_TELLING:
        return ""
    if seconds < 120:
        return f"about {seconds:.0f} s to go"
    return f"about {seconds / 60:.0f} min to go" if seconds < 7200 else f"about {seconds / 3600:.1f} h to go"


def line(progress: Progress) -> str:
    parts = [
        f"{datetime.fromtimestamp(progress.at):%H:%M:%S}",
        f"{progress.sink}",
        f"batch {progress.batch}",
        f"{progress.rows:,} rows",
        f"{progress.rows_per_second:,.0f} rows/s",
        f"lag {progress.lag:,}",
        f"{progress.batch_seconds:.1f} s",
    ]
    if left := time_left(progress):
        parts.append(left)
    if progress.state_rows:
        parts.append(f"state {progress.state_rows:,} rows, {progress.state_bytes / (1 << 20):.1f} MB")
    bad = sum(progress.malformed.values())
    if bad:
        parts.append(f"{bad:,} malformed")
    strange = sum(progress.unknown.values())
    if strange:
        named = ", ".join(repr(each) for each in progress.unknown_fields)
        parts.append(f"{strange:,} with unknown fields, such as {named}")
    return "  ".join(parts)
