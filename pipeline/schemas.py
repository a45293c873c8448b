"""Schemas over time: what a source's values looked like when the pipeline first ran is kept, and changes are judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.inputs import infer_schema
from tidemark.pipeline.spec import Pipeline, TopicSource, key_subject, value_subject

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
        for name, found in _of_registry(source, pipeline):
            _require_no_change(source, kept.get(name), found)
            resolved[name] = found
        if source.is_framed or (source.schema is None and not source.inferred):
            continue
        resolved[source.name] = _resolve_schema(spark, source, cluster, kept.get(source.name))
    if keep and resolved != kept:
        checkpoint.write_note(NOTE, resolved)
    return resolved


def _of_registry(source: TopicSource, pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """The readers' schemas of what is framed, values and keys: declared, or the newest of their subjects."""
    from tidemark.pipeline.registry.client import RegistryAway, RegistryRefused, Schema, registry
    from tidemark.pipeline.registry.columns import NoColumns
    from tidemark.pipeline.registry.decoding import KINDS, columns

    for name, wanted, subject, declared in (
        (source.name, source.format, value_subject(source), source.schema),
        (source.key_schema_name, source.key_format, key_subject(source), None),
    ):
        if wanted is None or wanted not in KINDS:
            continue
        assert pipeline.registry is not None
        try:
            if declared is not None:
                found = Schema(kind=KINDS[wanted], text=declared)
            else:
                latest = registry(pipeline.registry).latest(subject)
                if latest is None:
                    raise RegistryRefused(f"there is no subject {subject!r} in the registry, and no 'schema' here")
                found = latest[1]
            if found.kind != KINDS[wanted]:
                raise NoColumns(f"the schema of {subject!r} is {found.kind}, and the format is {wanted}")
            columns(found)
        except (RegistryAway, RegistryRefused, NoColumns) as error:
            raise CommandFailed(f"sources.{source.name}: {str(error).rstrip('.')}.", code=ExitCode.USAGE) from None
        yield name, found.note()


def _require_no_change(source: TopicSource, kept: str | None, now: str) -> None:
    if kept is None or kept == now or source.on_schema_change == "accept":
        return
    found = changes(before=_columns_of_note(kept), now=_columns_of_note(now))
    if found:
        raise _changed(source, found)


def _columns_of_note(note: str) -> dict[str, str]:
    from pyspark.sql.types import StructType

    from tidemark.pipeline.registry.client import Schema
    from tidemark.pipeline.registry.decoding import columns

    kind = columns(Schema.of_note(note))
    if not isinstance(kind, StructType):
        return {"value": kind.simpleString()}
    return {field.name: field.dataType.simpleString() for field in kind.fields}


def _changed(source: TopicSource, found: list[str]) -> CommandFailed:
    return CommandFailed(
        f"sources.{source.name}: the schema has changed since this pipeline's first run: {'; '.join(found)}. "
        "Set 'on_schema_change: accept' to go on with the new one.",
        code=ExitCode.USAGE,
    )


def _resolve_schema(spark: SparkSession, source: TopicSource, cluster: ClusterAdmin, kept: str | None) -> str:
    if source.schema is None:
        return kept if kept is not None else infer_schema(spark, source, cluster)
    _require_readable(source, source.schema)
    if kept is None or kept == source.schema or source.on_schema_change == "accept":
        return source.schema
    found = _changes_of(source, before=kept, now=source.schema)
    if found:
        raise _changed(source, found)
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
