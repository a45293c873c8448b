"""Columns to framed bytes: the schema is registered when a query starts, and its id is in every record."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.registry import protobuf
from tidemark.pipeline.registry.client import (
    AVRO,
    JSON,
    Registry,
    RegistryAway,
    RegistryRefused,
    RegistrySettings,
    Schema,
    registry,
)
from tidemark.pipeline.registry.columns import NoColumns
from tidemark.pipeline.registry.decoding import KINDS, derived
from tidemark.pipeline.registry.framing import FIRST_MESSAGE, header
from tidemark.pipeline.worker_memory import leave_out_loaded_modules

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

NOT_REGISTERED = 0  # the id in a plan that is only looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """How a sink's values, or its keys, are to be written."""

    place: str  # sinks.orders, for messages
    format: str
    subject: str
    schema: str | None  # None: that of the columns
    may_register: bool

    @property
    def kind(self) -> str:
        return KINDS[self.format]


def framed(column: Column, of: DataType, framing: Framing, settings: RegistrySettings, *, register: bool) -> Column:
    """`register`: False where nothing is to be written, only looked at."""
    from pyspark.sql import functions as f

    try:
        number, schema = _schema(of, framing, registry(settings), register=register)
        content = _content(column, of, schema)
    except (RegistryAway, RegistryRefused, NoColumns) as error:
        raise CommandFailed(f"{framing.place}: {str(error).rstrip('.')}.", code=ExitCode.USAGE) from None
    return f.concat(f.lit(header(number)), content)


def _schema(of: DataType, framing: Framing, there: Registry, *, register: bool) -> tuple[int, Schema]:
    latest = there.latest(framing.subject)
    if framing.schema is None and not framing.may_register:
        if latest is None:
            raise RegistryRefused(f"there is no subject {framing.subject!r}, and 'auto_register' is false")
        return latest
    if framing.schema is not None:
        wanted = Schema(kind=framing.kind, text=framing.schema)
    else:
        before = None if latest is None else latest[1]
        wanted = derived(framing.kind, of, name=_record_name(framing.subject), latest=before)
    if register:
        return there.register(framing.subject, wanted), wanted
    if latest is not None and not there.accepts(framing.subject, wanted):
        raise RegistryRefused(f"the registry would not take this schema for {framing.subject!r}: it is not compatible")
    return NOT_REGISTERED, wanted


def _record_name(subject: str) -> str:
    name = re.sub(r"\W", "_", subject.removesuffix("-value").removesuffix("-key"))
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def _content(column: Column, of: DataType, schema: Schema) -> Column:
    from pyspark.sql import functions as f

    if schema.kind == AVRO:
        from pyspark.sql.avro.functions import to_avro

        return to_avro(column, schema.text)
    if schema.kind == JSON:
        if of.typeName() in ("struct", "map", "array"):
            return f.to_json(column).cast("binary")
        alone = f.to_json(f.array(column))  # a text in its quotes
        return f.regexp_replace(alone, r"^\[|\]$", "").cast("binary")
    return f.concat(f.lit(FIRST_MESSAGE), _as_message(schema)(column))


def _as_message(schema: Schema) -> Callable[..., Any]:
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    protobuf.columns(schema)  # refused here, rather than by a task

    def encode(rows: pa.Array) -> pa.Array:
        leave_out_loaded_modules()
        one = protobuf.encoder(schema)
        return pa.array([None if row is None else one(row) for row in rows.to_pylist()], type=pa.binary())

    return arrow_udf(encode, "binary")  # type: ignore[no-any-return]
