"""A view in the form that its sink takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.pipeline.sinks import files, upsert
from tidemark.pipeline.sinks.topic import records
from tidemark.pipeline.spec import Pipeline, Sink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_for(view: DataFrame, sink: Sink, pipeline: Pipeline, *, register: bool = True) -> DataFrame:
    """`register`: whether a registry may be given schemas now."""
    if isinstance(sink, TopicSink):
        may_register = register and pipeline.registers_schemas
        return records(view, sink, registry=pipeline.registry, register=may_register)
    return upsert.changes(view, sink) if sink.is_upsert else files.gathered(view, sink)
