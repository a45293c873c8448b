"""Protobuf of a registry: the writer's file says which message it is, the reader's says what its fields are called.

Fields are known by their numbers, so a message is read by the reader's own description, whatever the writer's names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.pipeline.registry.client import PROTOBUF, Schema
from tidemark.pipeline.registry.columns import NoColumns, simple
from tidemark.pipeline.registry.framing import split_indexes

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql.types import DataType

PROTOC_SECONDS_MAX = 60
_WRAPPERS = "google.protobuf."
_TYPES = {  # by FieldDescriptor.TYPE_*
    1: "DOUBLE", 2: "FLOAT", 3: "BIGINT", 4: "DECIMAL", 5: "INT", 6: "DECIMAL", 7: "BIGINT", 8: "BOOLEAN", 9: "STRING",
    12: "BINARY", 13: "BIGINT", 14: "STRING", 15: "INT", 16: "BIGINT", 17: "INT", 18: "BIGINT",
}  # fmt: skip
_MESSAGE, _ENUM = 11, 14
_RESERVED_BY_PROTOBUF = range(19_000, 20_000)
_WRITTEN = {
    "boolean": "bool", "byte": "int32", "short": "int32", "integer": "int32", "long": "int64", "float": "float",
    "double": "double", "string": "string", "binary": "bytes", "timestamp": "google.protobuf.Timestamp",
}  # fmt: skip


def columns(schema: Schema) -> DataType:
    return _columns(_messages(schema)[(0,)], within=())


def decoder(*, writer: Schema, reader: Schema) -> Callable[[bytes], object]:
    from google.protobuf.message_factory import GetMessageClass

    written, wanted = _messages(writer), _messages(reader)[(0,)]
    message, row = GetMessageClass(wanted), _row(wanted)

    def decode(payload: bytes) -> object:
        indexes, content = split_indexes(payload)
        found = written.get(indexes)
        if found is None:
            raise ValueError(f"the schema has no message {'.'.join(map(str, indexes))}")
        if found.full_name != wanted.full_name:
            raise ValueError(f"it is a {found.full_name}, not a {wanted.full_name}")
        return row(message.FromString(content))

    return decode


def unknown_field(*, writer: Schema, reader: Schema) -> str | None:
    known = {each.number for each in _messages(reader)[(0,)].fields}
    return next((each.name for each in _messages(writer)[(0,)].fields if each.number not in known), None)


def schema_of(kind: DataType, *, name: str, latest: Schema | None = None) -> Schema:
    """Every field is optional: a null is not there. A field keeps the number that it has in `latest`, and no number is
    given to another: readers know fields by nothing else, and a registry takes a field that was renamed."""
    from pyspark.sql.types import StructType

    if not isinstance(kind, StructType):
        raise NoColumns("a Protobuf message needs columns; give a struct")
    before = None if latest is None or latest.kind != PROTOBUF else _messages(latest)[(0,)]
    text = _message(kind, name, depth=0, before=before)
    imported = 'import "google/protobuf/timestamp.proto";\n' if "google.protobuf.Timestamp" in text else ""
    return Schema(kind=PROTOBUF, text=f'syntax = "proto3";\n{imported}{text}')


def encoder(schema: Schema) -> Callable[[Any], bytes]:
    """From a row (a dict) to a message's bytes."""
    from google.protobuf.message_factory import GetMessageClass

    descriptor = _messages(schema)[(0,)]
    message = GetMessageClass(descriptor)

    def encode(row: Any) -> bytes:
        made = message()
        _fill(made, descriptor, row)
        return bytes(made.SerializeToString(deterministic=True))

    return encode


def _numbers(names: Sequence[str], before: Descriptor | None) -> tuple[dict[str, int], list[int]]:
    """A number for each field, and those that must never be a field's again."""
    from google.protobuf import descriptor_pb2

    if before is None:
        return {name: number for number, name in enumerate(names, start=1)}, []
    said = descriptor_pb2.DescriptorProto()
    before.CopyToProto(said)
    taken = {each.number for each in before.fields}
    taken |= {number for each in said.reserved_range for number in range(each.start, min(each.end, each.start + 1000))}
    known = {each.name: each.number for each in before.fields}
    free = (number for number in count(max(taken, default=0) + 1) if number not in _RESERVED_BY_PROTOBUF)
    numbers = {name: known[name] if name in known else next(free) for name in names}
    return numbers, sorted(taken - set(numbers.values()))


def _message(kind: Any, name: str, *, depth: int, before: Descriptor | None) -> str:
    from pyspark.sql.types import ArrayType, MapType, StructType

    space = "  " * (depth + 1)
    numbers, gone = _numbers([each.name for each in kind.fields], before)
    inner, fields = [], [f"{space}reserved {number};\n" for number in gone]
    for each in kind.fields:
        number = numbers[each.name]
        of, label = each.dataType, "optional "
        if isinstance(of, ArrayType):
            of, label = of.elementType, "repeated "
        if isinstance(of, StructType):
            nested = f"Of_{each.name}"
            was = None if before is None else before.nested_types_by_name.get(nested)
            inner.append(_message(of, nested, depth=depth + 1, before=was))
            fields.append(f"{space}{label}{nested} {each.name} = {number};\n")
        elif isinstance(of, MapType) and label == "optional ":
            fields.append(f"{space}map<string, {_written(of.valueType)}> {each.name} = {number};\n")
        else:
            fields.append(f"{space}{label}{_written(of)} {each.name} = {number};\n")
    return f"{'  ' * depth}message {name} {{\n{''.join(inner)}{''.join(fields)}{'  ' * depth}}}\n"


def _written(kind: DataType) -> str:
    if kind.typeName() not in _WRITTEN:
        raise NoColumns(f"Protobuf has no type for {kind.simpleString()}; cast the column, to STRING for example")
    return _WRITTEN[kind.typeName()]


def _fill(message: Any, descriptor: Descriptor, row: Any) -> None:
    for field in descriptor.fields:
        value = row.get(field.name)
        if value is None:
            continue
        if _is_map(field):
            getattr(message, field.name).update({key: each for key, each in dict(value).items() if each is not None})
        elif field.is_repeated:
            many = getattr(message, field.name)
            for each in value:
                if each is None:
                    raise ValueError(f"{field.name} has a null in its list, which Protobuf has no way to write")
                if field.type == _MESSAGE:
                    _fill_one(many.add(), field.message_type, each)
                else:
                    many.append(each)
        elif field.type == _MESSAGE:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill_one(inner, field.message_type, value)
        else:
            setattr(message, field.name, value)


def _fill_one(message: Any, descriptor: Descriptor, value: Any) -> None:
    if descriptor.full_name == "google.protobuf.Timestamp":
        message.FromDatetime(value)
    elif descriptor.full_name.startswith(_WRAPPERS) and "value" in descriptor.fields_by_name:
        message.value = value
    else:
        _fill(message, descriptor, value)


@cache
def _messages(schema: Schema) -> dict[tuple[int, ...], Descriptor]:
    """Every message of the file by its place, as frames name it: (0,) is the first, (0, 1) the second within it."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    files = descriptor_pb2.FileDescriptorSet.FromString(_compiled(schema))
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.AddSerializedFile(each.SerializeToString())
    last = files.file[-1]
    found: dict[tuple[int, ...], Descriptor] = {}

    def note(place: tuple[int, ...], name: str, messages: Sequence[Any]) -> None:
        for index, each in enumerate(messages):
            full = f"{name}.{each.name}" if name else each.name
            found[*place, index] = pool.FindMessageTypeByName(full)
            note((*place, index), full, each.nested_type)

    note((), last.package, last.message_type)
    if not found:
        raise NoColumns("the file has no message")
    return found


def _compiled(schema: Schema) -> bytes:
    """By protoc, which comes with grpcio-tools: a file and those that it imports, as descriptors."""
    try:
        import grpc_tools
    except ImportError:
        raise NoColumns("Protobuf needs the package grpcio-tools: pip install 'tidemark[registry]'") from None
    with tempfile.TemporaryDirectory(prefix="tidemark-proto-") as folder:
        root = Path(folder)
        _lay_out(schema, root, "schema.proto")
        told = subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
             "--include_imports", f"--descriptor_set_out={root / 'out'}", "schema.proto"],
            cwd=root, capture_output=True, text=True, timeout=PROTOC_SECONDS_MAX, check=False,
        )  # fmt: skip
        if told.returncode != 0:
            raise NoColumns(f"protoc refuses it: {' '.join(told.stderr.split())[:300]}")
        return (root / "out").read_bytes()


def _lay_out(schema: Schema, root: Path, name: str) -> None:
    place = (root / name).resolve()
    if not place.is_relative_to(root.resolve()):
        raise NoColumns(f"it imports {name!r}")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(schema.text)
    for imported, each in schema.references:
        _lay_out(each, root, imported)


def _columns(message: Descriptor, *, within: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import StructField, StructType

    if message.full_name in within:
        raise NoColumns(f"the message {message.full_name} contains itself")
    inner = (*within, message.full_name)
    return StructType([StructField(each.name, _column(each, within=inner)) for each in message.fields])


def _column(field: FieldDescriptor, *, within: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import ArrayType, MapType

    if _is_map(field):
        key, value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        return MapType(_single(key, within=within), _single(value, within=within))
    one = _single(field, within=within)
    return ArrayType(one) if field.is_repeated else one


def _single(field: FieldDescriptor, *, within: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import DecimalType

    if field.type == _MESSAGE:
        message = field.message_type
        if message.full_name == "google.protobuf.Timestamp":
            return simple("TIMESTAMP")
        if message.full_name.startswith(_WRAPPERS):
            inner = message.fields_by_name.get("value")
            is_wrapper = message.full_name.endswith("Value") and inner is not None
            return _single(inner, within=within) if is_wrapper and inner is not None else simple("STRING")
        return _columns(message, within=within)
    name = _TYPES.get(field.type)
    if name is None:
        raise NoColumns(f"the field {field.full_name} is a group, which has no column")
    return DecimalType(20, 0) if name == "DECIMAL" else simple(name)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.type == _MESSAGE and field.message_type.GetOptions().map_entry)


def _row(message: Descriptor) -> Callable[[Any], dict[str, Any]]:
    fields = [(each.name, each.has_presence, _value(each)) for each in message.fields]

    def row(found: Any) -> dict[str, Any]:
        return {
            name: value(getattr(found, name)) if not has_presence or found.HasField(name) else None
            for name, has_presence, value in fields
        }

    return row


def _value(field: FieldDescriptor) -> Callable[[Any], Any]:
    if _is_map(field):
        of = field.message_type.fields_by_name["value"]
        one = _value(of)
        return lambda found: [(key, one(each)) for key, each in found.items()]
    one = _one(field)
    return (lambda found: [one(each) for each in found]) if field.is_repeated else one


def _one(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.type == _ENUM:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if _TYPES.get(field.type) == "DECIMAL":
        from decimal import Decimal

        return Decimal
    if field.type != _MESSAGE:
        return lambda value: value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        from datetime import UTC

        return lambda moment: moment.ToDatetime(tzinfo=UTC)
    if not name.startswith(_WRAPPERS):
        return _row(field.message_type)
    if name.endswith("Value") and "value" in field.message_type.fields_by_name:
        inner = _one(field.message_type.fields_by_name["value"])
        return lambda wrapped: inner(wrapped.value)
    return _as_json


def _as_json(message: Any) -> str:
    from google.protobuf.json_format import MessageToDict

    return json.dumps(MessageToDict(message))
