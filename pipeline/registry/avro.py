"""Avro of a registry: read by the writer's schema as the reader's says, so that defaults and aliases hold."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidemark.pipeline.registry.client import AVRO, Schema
from tidemark.pipeline.registry.columns import NoColumns, simple

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

AvroType = dict[str, Any] | list[Any] | str  # as parsed JSON

# These come as the numbers and texts that they are written as: Spark has no type for them.
_AS_WRITTEN = ("uuid", "time-millis", "time-micros", "duration", "timestamp-nanos", "local-timestamp-nanos")
_PRIMITIVES = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "bytes": "BINARY",
    "string": "STRING", "enum": "STRING", "fixed": "BINARY",
}  # fmt: skip
_LOGICAL = {
    "date": "DATE", "timestamp-millis": "TIMESTAMP", "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ", "local-timestamp-micros": "TIMESTAMP_NTZ",
}  # fmt: skip
_WRITTEN: dict[str, AvroType] = {
    "boolean": "boolean", "byte": "int", "short": "int", "integer": "int", "long": "long", "float": "float",
    "double": "double", "binary": "bytes", "string": "string",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip


def columns(schema: Schema) -> DataType:
    named: dict[str, Any] = {}
    return _column(_parsed(schema, named), named, within=())


def names(schema: Schema) -> set[str]:
    """Of a record's fields, also by the names that they had before; empty for what is no record."""
    parsed = _parsed(schema, {})
    fields = parsed.get("fields", ()) if isinstance(parsed, dict) else ()
    return {name for each in fields for name in (each["name"], *each.get("aliases", ()))}


def decoder(*, writer: Schema, reader: Schema) -> Callable[[bytes], object]:
    import fastavro

    written = _parsed(writer, {})
    wanted = _parsed(reader, {})
    if written == "bytes" == wanted:
        return lambda payload: payload  # Confluent's serializers write bytes as they are, without their length

    def decode(payload: bytes) -> object:
        at = io.BytesIO(payload)
        value = fastavro.schemaless_reader(at, written, wanted)
        if at.tell() != len(payload):
            raise ValueError(f"{len(payload) - at.tell()} bytes are left over")
        return value

    return decode


def schema_of(kind: DataType, *, name: str) -> Schema:
    """A schema for rows of these columns. Every field may be null, and is if it is not there."""
    return Schema(kind=AVRO, text=json.dumps(_written(kind, name)))


def _written(kind: DataType, name: str) -> AvroType:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, StructType):
        fields = [
            {"name": each.name, "type": ["null", _written(each.dataType, f"{name}_{each.name}")], "default": None}
            for each in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": ["null", _written(kind.elementType, f"{name}_item")]}
    if isinstance(kind, MapType):
        return {"type": "map", "values": ["null", _written(kind.valueType, f"{name}_value")]}
    if isinstance(kind, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind.typeName() not in _WRITTEN:
        raise NoColumns(f"Avro has no type for {kind.simpleString()}")
    return _WRITTEN[kind.typeName()]


def _parsed(schema: Schema, named: dict[str, Any]) -> AvroType:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        for _, each in schema.references:
            _parsed(each, named)
        plain = json.loads(schema.text)
        parsed: AvroType = fastavro.parse_schema(_without_logic(plain), named_schemas=named)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise NoColumns(f"it is no Avro schema: {error}") from None
    return parsed


def _without_logic(schema: AvroType) -> AvroType:
    if isinstance(schema, list):
        return [_without_logic(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    as_written = schema.get("logicalType") in _AS_WRITTEN
    return {
        key: _without_logic(each) if key in ("type", "fields", "items", "values") else each
        for key, each in schema.items()
        if not (as_written and key == "logicalType")
    }


def _column(schema: Any, named: Mapping[str, Any], *, within: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructField, StructType

    if isinstance(schema, list):
        return _of_union(schema, named, within=within)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return simple(_PRIMITIVES[schema])
        if schema not in named:
            raise NoColumns(f"there is no type {schema!r}")
        return _column(named[schema], named, within=within)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    if logical in _LOGICAL:
        return simple(_LOGICAL[logical])
    if kind == "record":
        if schema["name"] in within:
            raise NoColumns(f"the record {schema['name']!r} contains itself")
        inner = (*within, schema["name"])
        return StructType(
            [StructField(each["name"], _column(each["type"], named, within=inner)) for each in schema["fields"]]
        )
    if kind == "array":
        return ArrayType(_column(schema["items"], named, within=within))
    if kind == "map":
        return MapType(StringType(), _column(schema["values"], named, within=within))
    if isinstance(kind, str) and kind in _PRIMITIVES:
        return simple(_PRIMITIVES[kind])
    return _column(kind, named, within=within)


def _of_union(branches: list[Any], named: Mapping[str, Any], *, within: tuple[str, ...]) -> DataType:
    others = [each for each in branches if each != "null"]
    if len(others) == 1:
        return _column(others[0], named, within=within)
    if set(map(str, others)) == {"int", "long"}:
        return simple("BIGINT")
    if set(map(str, others)) <= {"int", "long", "float", "double"}:
        return simple("DOUBLE")
    raise NoColumns(f"a union of {', '.join(_name(each) for each in others)} has no type in Spark")


def _name(schema: Any) -> str:
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)
