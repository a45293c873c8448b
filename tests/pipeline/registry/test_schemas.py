"""Schemas as columns, and bytes by them, without a registry."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from tidemark.pipeline.registry import avro, json_schema, protobuf
from tidemark.pipeline.registry.client import AVRO, JSON, PROTOBUF, Schema
from tidemark.pipeline.registry.columns import NoColumns


def avro_schema(*fields: dict[str, Any]) -> Schema:
    return Schema(kind=AVRO, text=json.dumps({"type": "record", "name": "r", "fields": list(fields)}))


def written(schema: Schema, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema.text)), value)
    return out.getvalue()


def test_avro_types_as_columns() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    schema = avro_schema(
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", money]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "number", "type": ["int", "long", "null"]},
        {"name": "inner", "type": {"type": "record", "name": "i", "fields": [{"name": "e", "type": "double"}]}},
        {"name": "again", "type": "i"},
    )
    assert avro.columns(schema).simpleString() == (
        "struct<id:string,at:timestamp,price:decimal(9,2),tags:map<string,array<int>>,number:bigint,"
        "inner:struct<e:double>,again:struct<e:double>>"
    )
    moment = datetime(2026, 11, 17, tzinfo=UTC)
    row = {"id": "x", "at": moment, "price": Decimal("1.25"), "tags": {"a": [1]}, "number": 7,
           "inner": {"e": 0.5}, "again": {"e": 1.5}}  # fmt: skip
    plain = avro_schema(*json.loads(schema.text)["fields"][1:])
    assert avro.decoder(writer=plain, reader=plain)(written(plain, row)) == {k: v for k, v in row.items() if k != "id"}


def test_avro_is_read_as_the_readers_schema_says() -> None:
    old = avro_schema({"name": "a", "type": "int"}, {"name": "gone", "type": "string"})
    new = avro_schema({"name": "b", "type": "long", "aliases": ["a"]}, {"name": "c", "type": "string", "default": "-"})
    assert avro.decoder(writer=old, reader=new)(written(old, {"a": 3, "gone": "x"})) == {"b": 3, "c": "-"}
    with pytest.raises(ValueError, match="1 bytes are left over"):
        avro.decoder(writer=old, reader=old)(written(old, {"a": 3, "gone": "x"}) + b"!")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([{"name": "u", "type": ["string", "int"]}], "a union of string, int has no type in Spark"),
        ([{"name": "next", "type": ["null", "r"]}], "the record 'r' contains itself"),
        ([{"name": "x", "type": "nothing"}], "no Avro schema"),
    ],
)
def test_avro_that_has_no_columns_is_told(fields: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(NoColumns, match=why):
        avro.columns(avro_schema(*fields))


def test_json_schema_types_as_columns() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    root = {
        "type": "object",
        "definitions": {"node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}}},
        "properties": {
            "id": {"type": ["integer", "null"]},
            "p": {"$ref": "point.json"},
            "any": {},
            "by": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "node": {"$ref": "#/definitions/node"},
        },
        "required": ["id"],
    }
    schema = Schema(
        kind=JSON, text=json.dumps(root), references=(("point.json", Schema(kind=JSON, text=json.dumps(point))),)
    )
    kinds = "struct<id:bigint,p:struct<x:double>,any:string,by:map<string,boolean>,node:struct<next:string>>"
    assert json_schema.columns(schema).simpleString() == kinds
    decode = json_schema.decoder(writer=schema, reader=schema)
    row = decode(b'{"id": 1, "p": {"x": 2}, "any": [1], "by": {"k": true}, "new": 0}')
    assert row == {"id": 1, "p": {"x": 2.0}, "any": "[1]", "by": [("k", True)], "node": None}
    for wrong in (b'{"p": {}}', b'{"id": "1"}', b'{"id": 1, "p": {"x": "no"}}', b"{", b'{"id": 99999999999999999999}'):
        with pytest.raises(Exception, match=r"."):
            decode(wrong)


ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "money.proto";
message Order {
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1; optional string note = 2; State state = 3; google.protobuf.Timestamp at = 4; Money price = 5;
  repeated int32 sizes = 6; map<string, Money> fees = 7; uint64 big = 8;
}
message Other { int32 x = 1; }
"""
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'


def test_protobuf_is_read_by_the_numbers_of_its_fields() -> None:
    reference = ("money.proto", Schema(kind=PROTOBUF, text=MONEY))
    writer = Schema(kind=PROTOBUF, text=ORDER, references=(reference,))
    kinds = (
        "struct<id:bigint,note:string,state:string,at:timestamp,price:struct<cents:bigint>,sizes:array<int>,"
        "fees:map<string,struct<cents:bigint>>,big:decimal(20,0)>"
    )
    assert protobuf.columns(writer).simpleString() == kinds
    moment = datetime(2026, 11, 17, tzinfo=UTC)
    payload = protobuf.encoder(writer)(
        {"id": 5, "state": 1, "at": moment, "price": {"cents": 9}, "sizes": [1, 2], "big": (1 << 64) - 1}
    )
    row = protobuf.decoder(writer=writer, reader=writer)(b"\0" + payload)
    assert row == {"id": 5, "note": None, "state": "PAID", "at": moment, "price": {"cents": 9}, "sizes": [1, 2],
                   "fees": [], "big": Decimal((1 << 64) - 1)}  # fmt: skip
    renamed = Schema(kind=PROTOBUF, text='syntax = "proto3"; package shop; message Order { int64 number = 1; }')
    assert protobuf.decoder(writer=writer, reader=renamed)(b"\0" + payload) == {"number": 5}
    assert protobuf.unknown_field(writer=writer, reader=renamed) == "note"
    with pytest.raises(ValueError, match=r"it is a shop\.Other, not a shop\.Order"):
        protobuf.decoder(writer=writer, reader=writer)(b"\2\2" + payload)


def test_a_column_put_between_others_takes_none_of_their_numbers() -> None:
    """Counted by their place, b would be read as c by all who have the old schema, and the registry would take it."""
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    def made(names: str, inner: str, latest: Schema | None) -> Schema:
        plain = [StructField(each, StringType()) for each in names]
        nested = StructType([StructField(each, IntegerType()) for each in inner])
        return protobuf.schema_of(
            StructType([*plain, *([StructField("inner", nested)] if inner else [])]), name="Row", latest=latest
        )

    first = made("ac", "xz", None)
    second = made("abc", "xyz", first)
    row = {"a": "A", "b": "B", "c": "C", "inner": {"x": 1, "y": 2, "z": 3}}
    written = b"\0" + protobuf.encoder(second)(row)
    assert protobuf.decoder(writer=second, reader=first)(written) == {"a": "A", "c": "C", "inner": {"x": 1, "z": 3}}
    without = made("a", "", second)
    again = made("ad", "", without)
    assert protobuf.decoder(writer=second, reader=again)(written) == {"a": "A", "d": None}


def test_protobuf_that_protoc_refuses_is_told() -> None:
    with pytest.raises(NoColumns, match="protoc refuses it"):
        protobuf.columns(Schema(kind=PROTOBUF, text="message {"))
    outside = (("../../x.proto", Schema(kind=PROTOBUF, text=MONEY)),)
    with pytest.raises(NoColumns, match=r"imports '\.\./\.\./x\.proto'"):
        protobuf.columns(Schema(kind=PROTOBUF, text=MONEY, references=outside))
