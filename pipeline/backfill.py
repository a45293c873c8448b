"""A source that begins in the past: what its topic has no longer comes from a lake, and from one exact offset on the
topic goes on.

Records have the same offsets in both (see source/lake.py), so batches, checkpoint, lag and the record of finished
batches know nothing of the change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import Partition
from tidemark.pipeline.spec import Pipeline, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def list_lakes(spark: SparkSession, pipeline: Pipeline, checkpoint: Checkpoint) -> dict[str, str]:
    """By source: where its reader finds the lake's files. What only Spark can list, it lists in the checkpoint, anew
    with every start of a query."""
    found = {}
    for source in pipeline.topic_sources:
        if source.backfill is None or source.backfill.kind == "segments":
            continue
        if source.backfill.kind == "parquet":
            found[source.name] = source.backfill.path
            continue
        if not checkpoint.is_local:
            raise CommandFailed(f"sources.{source.name}.backfill: the checkpoint must be a directory of this machine.")
        listing = f"lake-{source.name}.json"
        files = _of_delta(spark, source) if source.backfill.kind == "delta" else _of_iceberg(spark, source)
        checkpoint.path.mkdir(parents=True, exist_ok=True)
        new = checkpoint.path / f".{listing}.new"
        new.write_text(json.dumps([_local(uri, source) for uri in files], indent=0))
        new.replace(checkpoint.path / listing)
        found[source.name] = str(checkpoint.path / listing)
    return found


def _of_delta(spark: SparkSession, source: TopicSource) -> list[str]:
    from pyspark.errors import AnalysisException

    assert source.backfill is not None
    path = source.backfill.path
    try:
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]
        if {"deletionVectors", "columnMapping"} & set(detail["tableFeatures"] or ()):
            raise _refused(source, "its rows were deleted in place, or its columns renamed")
        return list(spark.read.format("delta").load(path).inputFiles())
    except AnalysisException as error:
        raise _refused(source, str(error).strip().splitlines()[0].rstrip(".")) from None


def _of_iceberg(spark: SparkSession, source: TopicSource) -> list[str]:
    assert source.backfill is not None
    table = source.backfill.path
    if not spark.catalog.tableExists(table):
        raise _refused(source, "there is no such table")
    files = spark.sql(f"SELECT file_path, content, file_format FROM {table}.files").collect()
    if any(each.content != 0 or each.file_format != "PARQUET" for each in files):
        raise _refused(source, "its rows were deleted in place, or its files are not Parquet")
    return [each.file_path for each in files]


def _refused(source: TopicSource, why: str) -> CommandFailed:
    assert source.backfill is not None
    message = f"sources.{source.name}.backfill: {source.backfill.path} cannot be read: {why}."
    return CommandFailed(message, code=ExitCode.USAGE)


def _local(uri: str, source: TopicSource) -> str:
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        raise _refused(source, f"its files are at {parsed.scheme}://, and must be on a disk that all executors have")
    return unquote(parsed.path) if parsed.scheme else str(Path(uri))


class ToTheEnd:
    """For `--once`: what was there when the run began is read to its end. Spark lets no Python source take part in
    AvailableNow: such a query ends after one batch, and is started again as long as there is more."""

    def __init__(self, ends: Mapping[Partition, int]) -> None:
        self._ends = ends
        self._last: dict[str, dict[Partition, int]] = {}

    def is_ahead(self, read: str, positions: Mapping[Partition, int]) -> bool:
        """Is there more? One that stood still is not asked to try for ever."""
        moved = self._last.get(read) != positions
        self._last[read] = dict(positions)
        return moved and any(positions.get(each, 0) < end for each, end in self._ends.items())
