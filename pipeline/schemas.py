"""Schemas over time: what a source's values looked like when the pipeline first ran is kept, and changes are judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.inputs import infer_schema
from tidemark.pipeline.spec import Pipeline, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE = "schemas.json"


def changes(*, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What cannot go on from the old columns to the new. A new column can: older rows have it null."""
    gone = [f"the column {name!r} is gone" for name in before if name not in now]
    other = [
        f"the column {name!r} was {kind} and is now {now[name]}"
        for name, kind in before.items()
        if name in now and now[name] != kind
    ]
    return gone + other


def resolve_schemas(
    spark: SparkSession, pipeline: Pipeline, cluster: ClusterAdmin, checkpoint: Checkpoint, *, keep: bool = True
) -> dict[str, str]:
    """The schema of each source that has one, by name: declared, kept from the first run, or inferred now."""
    kept: dict[str, str] = checkpoint.read_note(NOTE)
    resolved: dict[str, str] = {}
    for source in pipeline.topic_sources:
        if source.schema is None and not source.inferred:
            continue
        resolved[source.name] = _resolve_schema(spark, source, cluster, checkpoint, kept.get(source.name))
    if keep and resolved != kept:
        checkpoint.write_note(NOTE, resolved)
    return resolved


def _resolve_schema(
    spark: SparkSession, source: TopicSource, cluster: ClusterAdmin, checkpoint: Checkpoint, kept: str | None
) -> str:
    if source.schema is None:
        if not checkpoint.is_local:
            raise CommandFailed(
                f"sources.{source.name} needs a 'schema': one that is inferred is kept in the checkpoint, and "
                f"{checkpoint.location} is not a directory of this machine."
            )
        return kept if kept is not None else infer_schema(spark, source, cluster)
    _require_readable(source, source.schema)
    if kept is None or kept == source.schema or source.on_schema_change == "accept":
        return source.schema
    found = _changes_of(source, before=kept, now=source.schema)
    if found:
        raise CommandFailed(
            f"sources.{source.name}: the schema has changed since this pipeline's first run: {'; '.join(found)}. "
            "Set 'on_schema_change: accept' to go on with the new one.",
            code=ExitCode.USAGE,
        )
    return source.schema


def _require_readable(source: TopicSource, schema: str) -> None:
    from pyspark.errors import PySparkException

    if source.format == "avro":
        return
    try:
        columns_of(schema)
    except (PySparkException, AssertionError) as error:
        why = next(iter(str(error).strip().splitlines()), "it cannot be read").rstrip(".")
        raise CommandFailed(f"sources.{source.name}.schema: {why}.", code=ExitCode.USAGE) from None


def _changes_of(source: TopicSource, *, before: str, now: str) -> list[str]:
    if source.format == "avro":
        return ["the Avro schema is another"]
    return changes(before=columns_of(before), now=columns_of(now))


def columns_of(ddl: str) -> dict[str, str]:
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(ddl)
    assert isinstance(parsed, StructType)
    return {field.name: field.dataType.simpleString() for field in parsed.fields}
