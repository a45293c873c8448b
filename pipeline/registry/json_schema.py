"""JSON Schema of a registry: the text is checked against the writer's schema, and read as the reader's columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidemark.pipeline.registry.client import JSON, Schema
from tidemark.pipeline.registry.columns import NoColumns, fitting, simple

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Json = dict[str, Any] | list[Any] | str | float | bool | None

_SIMPLE = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_WRITTEN = {
    "boolean": "boolean", "byte": "integer", "short": "integer", "integer": "integer", "long": "integer",
    "float": "number", "double": "number", "decimal": "number", "string": "string", "binary": "string",
    "date": "string", "timestamp": "string", "timestamp_ntz": "string",
}  # fmt: skip


def columns(schema: Schema) -> DataType:
    root = _parsed(schema)
    return _column(root, _Definitions(root, schema), within=())


def names(schema: Schema) -> set[str]:
    found = columns(schema)
    return set(found.fieldNames()) if hasattr(found, "fieldNames") else set()


def decoder(*, writer: Schema, reader: Schema) -> Callable[[bytes], object]:
    import fastjsonschema

    try:
        check = fastjsonschema.compile(_with_absolute_references(writer), handlers={"registry": _finder(writer)})
    except (fastjsonschema.JsonSchemaDefinitionException, ValueError, KeyError, TypeError) as error:
        raise NoColumns(f"it is no JSON schema: {error}") from None
    fit = fitting(columns(reader))

    def decode(payload: bytes) -> object:
        value = json.loads(payload)
        check(value)
        return fit(value)

    return decode


def unknown_field(payload: bytes, known: set[str]) -> str | None:
    value = json.loads(payload)
    return next((name for name in value if name not in known), None) if isinstance(value, dict) else None


def schema_of(kind: DataType, *, name: str) -> Schema:
    root = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_written(kind)}
    return Schema(kind=JSON, text=json.dumps(root))


def _written(kind: DataType) -> dict[str, Any]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return {"type": "object", "properties": {each.name: _or_null(each.dataType) for each in kind.fields}}
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": _or_null(kind.elementType)}
    if isinstance(kind, MapType):
        return {"type": "object", "additionalProperties": _or_null(kind.valueType)}
    if kind.typeName() not in _WRITTEN:
        raise NoColumns(f"JSON Schema has no type for {kind.simpleString()}")
    return {"type": _WRITTEN[kind.typeName()]}


def _or_null(kind: DataType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _written(kind)]}


def _parsed(schema: Schema) -> Json:
    try:
        parsed: Json = json.loads(schema.text)
    except ValueError as error:
        raise NoColumns(f"it is no JSON: {error}") from None
    return parsed


def _finder(schema: Schema) -> Callable[[str], Any]:
    outside = dict(schema.references)
    return lambda address: _parsed(outside[address.removeprefix("registry:///")])


def _with_absolute_references(schema: Schema) -> Json:
    """References to other subjects are by names; the checker wants addresses, and asks us for what is there."""
    outside = {name for name, _ in schema.references}

    def absolute(node: Json) -> Json:
        if isinstance(node, list):
            return [absolute(each) for each in node]
        if not isinstance(node, dict):
            return node
        made = {key: absolute(each) for key, each in node.items()}
        place, mark, inner = str(node.get("$ref", "")).partition("#")
        return {**made, "$ref": f"registry:///{place}{mark}{inner}"} if place in outside else made

    return absolute(_parsed(schema))


class _Definitions:
    """What $ref leads to: within the schema, or another that it refers to by name."""

    def __init__(self, root: Any, schema: Schema) -> None:
        self._root = root
        self._outside = {name: (_parsed(each), each) for name, each in schema.references}

    def find(self, reference: str) -> tuple[Any, _Definitions]:
        place, _, path = reference.partition("#")
        if place:
            if place not in self._outside:
                raise NoColumns(f"there is no {reference!r}")
            root, schema = self._outside[place]
            return _Definitions(root, schema).find(f"#{path}")
        node: Any = self._root
        for step in filter(None, path.split("/")):
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        if node is None:
            raise NoColumns(f"there is no {reference!r}")
        return node, self


def _column(node: Any, definitions: _Definitions, *, within: tuple[str, ...]) -> DataType:
    """What has no one type (several, none, or one that contains itself) is a column of JSON as text."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if not isinstance(node, dict):
        return simple("STRING")
    if "$ref" in node:
        reference = str(node["$ref"])
        if reference in within:
            return simple("STRING")
        found, where = definitions.find(reference)
        return _column(found, where, within=(*within, reference))
    choices = [each for each in node.get("oneOf") or node.get("anyOf") or () if each != {"type": "null"}]
    if choices:
        return _column(choices[0], definitions, within=within) if len(choices) == 1 else simple("STRING")
    kinds = node.get("type", "object" if "properties" in node else None)
    named = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each not in (None, "null")]
    if len(named) != 1:
        return simple("STRING")
    kind = named[0]
    if kind == "array":
        return ArrayType(_column(node.get("items"), definitions, within=within))
    if kind == "object" and node.get("properties"):
        properties = node["properties"].items()
        return StructType([StructField(name, _column(each, definitions, within=within)) for name, each in properties])
    if kind == "object":
        return MapType(StringType(), _column(node.get("additionalProperties"), definitions, within=within))
    return simple(_SIMPLE.get(kind, "STRING"))
