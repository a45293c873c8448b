"""Spark's types by name, and values that fit them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Fit = Callable[[Any], object]


class NoColumns(ValueError):
    """A schema that cannot be told as columns."""


def simple(name: str) -> DataType:
    """Without a JVM: executors' Python has none."""
    from pyspark.sql import types

    kind: DataType = {
        "BOOLEAN": types.BooleanType,
        "INT": types.IntegerType,
        "BIGINT": types.LongType,
        "FLOAT": types.FloatType,
        "DOUBLE": types.DoubleType,
        "BINARY": types.BinaryType,
        "STRING": types.StringType,
        "DATE": types.DateType,
        "TIMESTAMP": types.TimestampType,
        "TIMESTAMP_NTZ": types.TimestampNTZType,
    }[name]()
    return kind


def fitting(kind: DataType, path: str = "") -> Fit:
    """A function that makes what JSON has into a value of the type, or raises ValueError with the field's path."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        fields = [
            (each.name, fitting(each.dataType, f"{path}.{each.name}" if path else each.name)) for each in kind.fields
        ]
        return _of_kind(dict, path, lambda value: {name: fit(value.get(name)) for name, fit in fields})
    if isinstance(kind, ArrayType):
        item = fitting(kind.elementType, f"{path}[]")
        return _of_kind(list, path, lambda value: [item(each) for each in value])
    if isinstance(kind, MapType):
        of_value = fitting(kind.valueType, f"{path}.*")
        return _of_kind(dict, path, lambda value: [(key, of_value(each)) for key, each in value.items()])
    return {"long": _whole(path), "double": _number(path), "boolean": _of_kind(bool, path)}.get(kind.typeName(), _text)


def _of_kind(kind: type, path: str, make: Fit = lambda value: value) -> Fit:
    def fit(value: Any) -> object:
        if value is None:
            return None
        if not isinstance(value, kind):
            raise ValueError(f"{path or 'the value'} is {json.dumps(value)[:60]}, of another type than the column's")
        return make(value)

    return fit


def _whole(path: str) -> Fit:
    def fit(value: Any) -> object:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise ValueError(f"{path} is {json.dumps(value)[:60]}, not a whole number")
        if value is not None and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{path} is {value}, too large for a BIGINT")
        return value

    return fit


def _number(path: str) -> Fit:
    def fit(value: Any) -> object:
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise ValueError(f"{path} is {json.dumps(value)[:60]}, not a number")
        return None if value is None else float(value)

    return fit


def _text(value: Any) -> str | None:
    """What has no type of its own is kept as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)
