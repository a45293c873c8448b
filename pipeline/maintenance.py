"""Upkeep of tables: few large files, no more old versions than are wanted, and no files that nothing refers to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.compaction import LOG, compact, files_below, is_iceberg, logged_files, require_there
from tidemark.pipeline.sinks.files import local_path
from tidemark.pipeline.sinks.written import ICEBERG_BY_SPARK, ICEBERG_BY_US
from tidemark.pipeline.spec import FileSink, Maintenance, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE = "maintenance.json"  # in the checkpoint: when each table was last seen to
HOUR_S = 3600.0
ORPHANS_S_MIN = 24 * HOUR_S  # Iceberg's own limit: younger files may be of a commit that is under way
QUERY_IDLE_S_MAX = 30 * 24 * HOUR_S
DELTA_KEEP_HOURS_MIN = 168  # below this Delta asks whether it is meant


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What is to be done with one table."""

    target_file_bytes: int
    keep_s: float  # of versions: older ones can no longer be read
    orphans_s: float  # of files that no version refers to: younger ones may belong to a commit under way
    dry_run: bool = False


def maintain(spark: SparkSession, table: str, upkeep: Upkeep) -> list[str]:
    """What was done, or (`dry_run`) would be, in sentences. Nothing may write to a Parquet table meanwhile."""
    if upkeep.orphans_s < ORPHANS_S_MIN:
        raise CommandFailed("Files without an owner are kept for a day at least: they may be of a commit under way.",
                            code=ExitCode.USAGE)  # fmt: skip
    said = [] if upkeep.dry_run else [compact(spark, table, target_file_bytes=upkeep.target_file_bytes)]
    if is_iceberg(table):
        return said + _iceberg(spark, table, upkeep)
    directory = Path(local_path(table))
    if "://" in table or (directory / "_delta_log").is_dir():
        return said + _delta(spark, local_path(table), upkeep)
    if not directory.is_dir():
        raise CommandFailed(f"There is no table {table}.", code=ExitCode.NOT_FOUND)
    return said + _parquet(directory, upkeep)


def _delta(spark: SparkSession, path: str, upkeep: Upkeep) -> list[str]:
    """VACUUM does both: it removes whatever no version of the time that is kept refers to."""
    hours = upkeep.keep_s / HOUR_S
    if hours < DELTA_KEEP_HOURS_MIN:
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    vacuum = f"VACUUM delta.`{path}` RETAIN {hours:g} HOURS"
    found = spark.sql(f"{vacuum} DRY RUN").count()
    if not upkeep.dry_run:
        spark.sql(vacuum)
    done = "would be removed" if upkeep.dry_run else "were removed"
    return [f"{path}: {found} files that no version of the last {_span(upkeep.keep_s)} needs {done}."]


def _iceberg(spark: SparkSession, table: str, upkeep: Upkeep) -> list[str]:
    catalog, _, rest = table.partition(".")
    now = time.time()
    until = min([now - upkeep.keep_s, *_newest_of_queries(spark, table, now=now)])
    old = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots WHERE committed_at < {_literal(until)}").count()
    said = f"{table}: {old} snapshots {'would be' if upkeep.dry_run else 'were'} expired"
    if not upkeep.dry_run and old:
        [done] = spark.sql(
            f"CALL {catalog}.system.expire_snapshots(table => '{rest}', older_than => {_literal(until)}, "
            "retain_last => 1)"
        ).collect()
        said += f", with {done['deleted_data_files_count']} data files"
    orphans = spark.sql(
        f"CALL {catalog}.system.remove_orphan_files(table => '{rest}', older_than => "
        f"{_literal(now - upkeep.orphans_s)}, dry_run => {str(upkeep.dry_run).lower()})"
    ).count()
    done_to = "would be removed" if upkeep.dry_run else "were removed"
    return [f"{said}.", f"{table}: {orphans} files that belong to nothing {done_to}."]


def _newest_of_queries(spark: SparkSession, table: str, *, now: float) -> list[float]:
    """When each query wrote to the table last. By that snapshot a batch that is tried again is known to be written, so
    it is kept, and what came after it; not for ever for a query that writes no more."""
    found: dict[str, float] = {}
    for row in spark.sql(f"SELECT committed_at, summary FROM {table}.snapshots").collect():
        for of_query, _ in (ICEBERG_BY_SPARK, ICEBERG_BY_US):
            query = row.summary.get(of_query)
            if query is not None:
                found[query] = max(found.get(query, 0.0), row.committed_at.timestamp())
    return [each for each in found.values() if each > now - QUERY_IDLE_S_MAX]


def _parquet(directory: Path, upkeep: Upkeep) -> list[str]:
    """What killed batches left beside the files that the table's log names."""
    if not (directory / LOG).is_dir():
        return [f"{directory}: it has no log, so all of its files belong to it."]
    named = set(logged := logged_files(directory / LOG))
    require_there(directory, logged)
    before = time.time() - upkeep.orphans_s
    orphans = [each for each in files_below(directory) if each not in named and each.stat().st_mtime < before]
    for file in [] if upkeep.dry_run else orphans:
        file.unlink()
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    done = "would be removed" if upkeep.dry_run else "were removed"
    return [f"{directory}: {len(orphans)} files that are not in its log {done}."]


def _literal(at: float) -> str:
    return f"TIMESTAMP '{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S.%f}'"  # sessions are in UTC


def _span(seconds: float) -> str:
    return f"{seconds / 86400:g} days" if seconds >= 86400 else f"{seconds / HOUR_S:g} hours"


class Schedule:
    """When a pipeline's tables are due, as its checkpoint has it: whoever runs the pipeline next goes on with it."""

    def __init__(self, pipeline: Pipeline, checkpoint: Checkpoint, *, now: float) -> None:
        self._plan: Maintenance | None = pipeline.maintenance
        self._checkpoint = checkpoint
        self._tables = {each.name: each for each in pipeline.sinks if isinstance(each, FileSink) and each.path}
        noted: Mapping[str, Any] = checkpoint.read_note(NOTE) if self._plan is not None else {}
        self._last = {name: float(noted.get(name, now)) for name in self._tables}

    def due(self, *, now: float) -> list[FileSink]:
        if self._plan is None:
            return []
        every_s = self._plan.every_s
        return [sink for name, sink in self._tables.items() if now - self._last[name] >= every_s]

    def see_to(self, spark: SparkSession, sink: FileSink, *, now: float) -> list[str]:
        """The caller knows that nothing writes to the table meanwhile. What fails is told, and tried next time: upkeep
        is no reason to end a pipeline."""
        assert self._plan is not None
        upkeep = Upkeep(
            target_file_bytes=sink.target_file_bytes, keep_s=self._plan.keep_s, orphans_s=self._plan.orphans_s
        )
        try:
            said = maintain(spark, sink.path, upkeep)
        except Exception as error:  # whatever three table formats say
            why = str(error).strip().splitlines()
            said = [f"sinks.{sink.name}: its table could not be seen to: {why[0] if why else type(error).__name__}"]
        self._last[sink.name] = now
        self.keep()
        return said

    def keep(self) -> None:
        if self._plan is not None:
            self._checkpoint.write_note(NOTE, self._last)
