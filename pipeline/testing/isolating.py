"""A pipeline as it is, but on another cluster, with everything that it writes below one directory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.graph import DEAD_LETTER_PREFIX, all_sinks
from tidemark.pipeline.spec import (
    FileSink,
    LakeSource,
    Pipeline,
    Sink,
    Source,
    TopicSink,
    TopicSource,
    key_subject,
    value_subject,
)

TOPIC_PREFIX = "out."


def isolated(
    pipeline: Pipeline, *, bootstrap: str, directory: Path, catalog: str, sinks: Collection[str] | None = None
) -> Pipeline:
    """With these sinks only (None: all), and nothing of its pace, credentials and places."""
    known = [each.name for each in all_sinks(pipeline)]
    if unknown := sorted(set(sinks or ()) - set(known)):
        message = f"There is no sink {unknown[0]!r} in {pipeline.file}; there are {', '.join(known)}."
        raise CommandFailed(message, code=ExitCode.USAGE)
    # What a function of the user's does with its rows cannot be kept apart from the world.
    own = {each.name for each in pipeline.sinks if isinstance(each, FileSink) and each.kind == "python"}
    wanted = [name for name in (known if sinks is None else sinks) if name not in own]
    return replace(
        pipeline,
        bootstrap=bootstrap,
        kafka={},
        directory=str(directory),
        checkpoint=str(directory / "checkpoint"),
        warehouse=str(directory / "lake"),
        metrics_port=None,
        maintenance=None,
        lineage=None,
        registers_schemas=False,
        sources=tuple(_source(each, directory, wanted) for each in pipeline.sources),
        sinks=tuple(_sink(each, directory, catalog) for each in pipeline.sinks if each.name in wanted),
    )


def topic_of(sink: Sink) -> str | None:
    """Where a sink's records are found; None if a column decides, or it is no topic."""
    return sink.topic if isinstance(sink, TopicSink) and not sink.topic_column else None


def _source(source: Source, directory: Path, sinks: Collection[str]) -> Source:
    if isinstance(source, LakeSource):
        return source if source.kind == "iceberg" else replace(source, path=str(directory / "sources" / source.name))
    letters = source.on_malformed == "dead_letter" and DEAD_LETTER_PREFIX + source.name in sinks
    malformed = "count" if source.on_malformed == "dead_letter" and not letters else source.on_malformed
    return replace(source, start="earliest", start_time_ms=None, backfill=None, on_malformed=malformed)


def _sink(sink: Sink, directory: Path, catalog: str) -> Sink:
    if isinstance(sink, TopicSink):
        topic = sink.topic if sink.topic_column else TOPIC_PREFIX + sink.name
        subject, of_keys = value_subject(sink), key_subject(sink)  # those of the real topic
        return replace(sink, topic=topic, rate=None, trigger_s=0.1, subject=subject, key_subject=of_keys)
    if sink.kind == "iceberg":
        return replace(sink, path=f"{catalog}.{sink.path.partition('.')[2]}", commit_every_s=None)
    return replace(sink, path=str(directory / "sinks" / sink.name), commit_every_s=None)


def source_of(pipeline: Pipeline, name: str) -> tuple[Source, str]:
    """The source that a case means, and the topic (or, of a table, its path)."""
    for source in pipeline.sources:
        if isinstance(source, TopicSource):
            if name == source.name and len(source.topics) == 1:
                return source, source.topics[0]
            if name in source.topics or (source.pattern is not None and name != source.name):
                return source, name
        elif name == source.name:
            return source, source.path
    several = "; name the topic of a source that reads several" if name in pipeline.views else ""
    raise CommandFailed(f"given: there is no source {name!r} in {pipeline.file}{several}.", code=ExitCode.USAGE)


def topics_to_make(pipeline: Pipeline) -> list[str]:
    return sorted({topic for source in pipeline.topic_sources for topic in source.topics})


def is_table(sink: Sink) -> bool:
    return isinstance(sink, FileSink) and sink.is_table
