"""Framed bytes to rows, on the executors: each record by the schema that its frame names.

What cannot be read has a reason instead, and goes to the dead letters. A registry that is away is no reason: the task
fails, and is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.pipeline.registry import avro, json_schema, protobuf
from tidemark.pipeline.registry.client import (
    AVRO,
    JSON,
    PROTOBUF,
    RegistryAway,
    RegistrySettings,
    Schema,
    UnknownSchema,
    registry,
)
from tidemark.pipeline.registry.framing import Unframed, split
from tidemark.pipeline.worker_memory import leave_out_loaded_modules

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

KINDS = {"avro-confluent": AVRO, "json-confluent": JSON, "protobuf-confluent": PROTOBUF}
_MODULES: dict[str, Any] = {AVRO: avro, JSON: json_schema, PROTOBUF: protobuf}
REASON_CHARACTERS_MAX = 300
# One record: its row, why it has none, and a field of it that the reader's schema does not name.
Outcome = tuple[Any, str | None, str | None]


def columns(schema: Schema) -> DataType:
    """The type of what a schema describes: a struct, or (a key's, mostly) a plain one."""
    found: DataType = _MODULES[schema.kind].columns(schema)
    return found


def derived(kind: str, of: DataType, *, name: str, latest: Schema | None) -> Schema:
    """A schema for these columns. `latest`: the subject's newest version, by which Protobuf's fields have numbers."""
    if kind == PROTOBUF:
        return protobuf.schema_of(of, name=name, latest=latest)
    made: Schema = _MODULES[kind].schema_of(of, name=name)
    return made


class Decoder:
    """Of one source's values or keys. Keeps a reader for every schema that came by."""

    def __init__(self, settings: RegistrySettings, reader: Schema) -> None:
        self._registry = registry(settings)
        self._reader = reader
        self._by_id: dict[int, Callable[[bytes], tuple[Any, str | None]] | str] = {}

    def decode(self, framed: bytes | None) -> Outcome:
        if framed is None:
            return None, None, None
        try:
            number, payload = split(framed)
        except Unframed as error:
            return None, str(error), None
        read = self._by_id.get(number)
        if read is None:
            try:
                read = self._by_id[number] = self._reading(number)
            except UnknownSchema as error:
                return None, str(error), None  # not kept: it may be registered later
        if isinstance(read, str):
            return None, read, None
        try:
            row, unknown = read(payload)
        except Exception as error:  # whatever three libraries say of bytes that are not what their frame says
            told = " ".join(f"{error or type(error).__name__}".split())
            return None, f"it does not fit its schema {number}: {told}"[:REASON_CHARACTERS_MAX], None
        return row, None, unknown

    def _reading(self, number: int) -> Callable[[bytes], tuple[Any, str | None]] | str:
        """A function for payloads of this schema; or why there is none."""
        writer, reader = self._registry.by_id(number), self._reader
        if writer.kind != reader.kind:
            return f"its schema {number} is {writer.kind}, not {reader.kind}"
        try:
            decode = _MODULES[writer.kind].decoder(writer=writer, reader=reader)
            if writer.kind == JSON:
                known = json_schema.names(reader)
                return lambda payload: (decode(payload), json_schema.unknown_field(payload, known))
            if writer.kind == PROTOBUF:
                unknown = protobuf.unknown_field(writer=writer, reader=reader)
            else:
                unknown = next(iter(sorted(avro.names(writer) - avro.names(reader))), None)
        except ValueError as error:
            return f"its schema {number} cannot be used: {error}"[:REASON_CHARACTERS_MAX]
        return lambda payload: (decode(payload), unknown)


def decoding(settings: RegistrySettings, reader: Schema, of: DataType) -> Callable[..., Any]:
    """For Spark: bytes in, struct<value, reason, unknown> out."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
    from pyspark.sql.types import StringType, StructField, StructType

    outcome = StructType([StructField("value", of), StructField("reason", StringType()),
                          StructField("unknown", StringType())])  # fmt: skip
    kept: list[Decoder] = []

    def decode(framed: pa.Array) -> pa.Array:
        from pyspark.sql.pandas.types import to_arrow_type

        if not kept:
            kept.append(Decoder(settings, reader))
            leave_out_loaded_modules()
        wanted = to_arrow_type(of)
        outcomes = [kept[0].decode(each) for each in framed.to_pylist()]
        return as_arrow(outcomes, wanted)

    return arrow_udf(decode, outcome)  # type: ignore[no-any-return]


def as_arrow(outcomes: list[Outcome], wanted: pa.DataType) -> pa.Array:
    try:
        values = pa.array([value for value, _, _ in outcomes], type=wanted)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):  # one of them does not fit: find out which
        outcomes = [_fits(each, wanted) for each in outcomes]
        values = pa.array([value for value, _, _ in outcomes], type=wanted)
    texts = [pa.array([each[at] for each in outcomes], type=pa.string()) for at in (1, 2)]
    return pa.StructArray.from_arrays([values, *texts], names=["value", "reason", "unknown"])


def _fits(outcome: Outcome, wanted: pa.DataType) -> Outcome:
    try:
        pa.array([outcome[0]], type=wanted)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        return None, f"it does not fit the columns: {error}"[:REASON_CHARACTERS_MAX], None
    return outcome


__all__ = ["KINDS", "Decoder", "RegistryAway", "columns", "decoding", "derived"]
