"""Pipelines on a real registry, a real broker and Spark: what it frames we read, and what we frame it describes."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.registry import protobuf
from tidemark.pipeline.registry.client import PROTOBUF, Schema
from tidemark.pipeline.testing.bench import Bench
from tidemark.pipeline.testing.cases import Case, Given

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Trial
    from tests.pipeline.registry.conftest import RealRegistry

Committed = Callable[[str], list[GeneratedRecord]]
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "thing",
    "fields": [{"name": "id", "type": "long"}, {"name": "word", "type": ["null", "string"]}],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "more", "type": "int", "default": 5}]}


def framed(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def avro(number: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return framed(number, out.getvalue())


def read_avro(registry: RealRegistry, value: bytes | None) -> Any:
    assert value is not None
    (number,) = struct.unpack(">xI", value[:5])
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(json.loads(registry.text(number))))


def test_avro_values_and_keys_through_a_pipeline(trial: Trial, registry: RealRegistry, committed: Committed) -> None:
    topic, out, dead = trial.name, f"{trial.name}-out", f"{trial.name}-dead"
    first, key = registry.register(f"{topic}-value", FIRST), registry.register(f"{topic}-key", '"string"')
    json_id = registry.register(f"{topic}-json", {"type": "object", "properties": {"id": {"type": "integer"}}}, "JSON")
    formats = "format: avro-confluent, key_format: avro-confluent"
    source = f"sources.things={{topic: {topic}, {formats}, dead_letter_topic: {dead}}}"
    sink = f"sinks={{out: {{from: s, topic: {out}, key: _key_value, {formats}}}}}"
    steps = json.dumps([{"name": "s", "sql": "SELECT * FROM things"}])
    described = [source, f"steps={steps}", sink, f"registry.url={registry.url}"]
    good_key = avro(key, "string", "k1")
    trial.produce(avro(first, FIRST, {"id": 1, "word": "one"}), key=good_key)
    bad = [b"{}", framed(999_999, b"\x02"), framed(first, b"\x02"), framed(json_id, b"{}")]
    trial.produce(*bad, key=good_key)
    trial.produce(avro(first, FIRST, {"id": 2, "word": None}), key=b"no key of a registry's")
    runner = trial.run(*described)
    records = committed(out)
    assert [read_avro(registry, each.value) for each in records] == [{"id": 1, "word": "one"}]
    assert [read_avro(registry, each.key) for each in records] == ["k1"]
    assert sum(runner.metrics.malformed.values()) == 10  # five, seen by the sink and by that of the dead letters
    letters = committed(dead)
    assert [each.value for each in letters[:4]] == bad
    reasons = [dict(each.headers)["dead-letter-reason"].decode() for each in letters]
    assert reasons[0].startswith("the value: it is not framed")
    assert reasons[1] == "the value: the registry has no schema 999999"
    assert reasons[2].startswith(f"the value: it does not fit its schema {first}: ")
    assert reasons[3] == f"the value: its schema {json_id} is JSON, not AVRO"
    assert reasons[4].startswith("the key: it is not framed")

    # A writer that is ahead of us: its new field is counted. Once it is the subject's newest, it is a column.
    second = registry.register(f"{topic}-value", SECOND)
    trial.produce(avro(second, SECOND, {"id": 3, "word": "three", "more": 9}), key=good_key)
    trial.produce(avro(first, FIRST, {"id": 4, "word": "four"}), key=good_key)
    trial.run(*described, f"sources.things.schema={json.dumps(FIRST)}")
    assert "1 with unknown fields, such as 'more'" in trial.said.getvalue()
    assert [read_avro(registry, each.value)["id"] for each in committed(out)] == [1, 3, 4]
    trial.produce(avro(second, SECOND, {"id": 5, "word": "x", "more": 6}), key=good_key)
    trial.produce(avro(first, FIRST, {"id": 6, "word": "y"}), key=good_key)
    trial.run(*described)
    newest = [read_avro(registry, each.value) for each in committed(out)][-2:]
    assert newest == [{"id": 5, "word": "x", "more": 6}, {"id": 6, "word": "y", "more": 5}]
    changed = {**FIRST, "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(
        CommandFailed, match=r"the column 'word' is gone; the column 'more' is gone; the column 'id' was"
    ):
        trial.run(*described, f"sources.things.schema={json.dumps(changed)}")


def test_json_and_protobuf_through_a_pipeline(trial: Trial, registry: RealRegistry, committed: Committed) -> None:
    topic = trial.name
    text = 'syntax = "proto3"; message Thing { int64 id = 1; optional string word = 2; }'
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "word": {"type": "string"}}}
    js, pb = registry.register(f"{topic}-j", schema, "JSON"), registry.register(f"{topic}-p", text, "PROTOBUF")
    for name in ("j", "p"):
        trial.create_topic(f"{topic}-{name}")
    trial.produce_to(f"{topic}-j", framed(js, b'{"id": 1, "word": "one"}'), framed(js, b'{"id": "1"}'), None)
    encode = protobuf.encoder(Schema(kind=PROTOBUF, text=text))
    trial.produce_to(f"{topic}-p", framed(pb, b"\0" + encode({"id": 2, "word": "two"})), framed(pb, b"\0\xff"))
    sources = (
        f"sources={{j: {{topic: {topic}-j, format: json-confluent, subject: {topic}-j}}, "
        f"p: {{topic: {topic}-p, format: protobuf-confluent, subject: {topic}-p}}}}"
    )
    sinks = (
        f"sinks={{to_p: {{from: j, topic: {topic}-to-p, format: protobuf-confluent}}, "
        f"to_j: {{from: p, topic: {topic}-to-j, format: json-confluent, key: id, key_format: json-confluent}}}}"
    )
    runner = trial.run(sources, sinks, f"registry.url={registry.url}")
    one, tombstone = (each.value for each in committed(f"{topic}-to-p"))
    assert one is not None
    (number,) = struct.unpack(">xI", one[:5])
    ours = Schema(kind=PROTOBUF, text=registry.text(number))
    assert protobuf.decoder(writer=ours, reader=ours)(one[5:]) == {"id": 1, "word": "one"}
    assert tombstone is not None  # a row of nulls, unless 'value' says otherwise: as with JSON
    (two,) = committed(f"{topic}-to-j")
    assert two.value is not None
    assert json.loads(two.value[5:]) == {"id": 2, "word": "two"}
    assert two.key is not None
    assert two.key[5:] == b"2"
    (described,) = struct.unpack(">xI", two.value[:5])
    assert set(json.loads(registry.text(described))["properties"]) == {"id", "word"}
    assert sum(runner.metrics.malformed.values()) == 2


def test_a_schema_that_the_registry_refuses_is_told(trial: Trial, registry: RealRegistry, spark: SparkSession) -> None:
    subject = f"{trial.name}-out-value"
    registry.register(subject, FIRST)
    registry.require_compatibility(subject, "BACKWARD")
    trial.produce(b'{"id": "text"}')
    url = f"registry.url={registry.url}"
    case = Case(name="c", given={"things": (Given(value=b'{"id": "x"}'),)}, expect={"out": ({"partition": 0},)})
    sink = f"sinks={{out: {{from: things, topic: {trial.name}-out, format: avro-confluent}}}}"
    with pytest.raises(CommandFailed, match=r"sinks\.out: the registry answers 409"):
        trial.run("sources.things.schema={id: STRING}", sink, url)
    # A test or a dry run is told the same, and registers nothing.
    refused = Bench(spark).run_case(trial.pipeline("sources.things.schema={id: STRING}", sink, url), case)
    assert "the registry would not take this schema" in (refused.failure or "")
    elsewhere = sink.replace("-out,", "-new,")
    assert Bench(spark).run_case(trial.pipeline("sources.things.schema={id: STRING}", elsewhere, url), case).passed
    assert registry.versions(f"{trial.name}-new-value") == registry.versions("out.out-value") == []
    assert registry.versions(subject) == [1]
    with pytest.raises(CommandFailed, match=r"sources\.things: there is no subject '\S+-value' in the registry"):
        trial.run(f"sources.things={{topic: {trial.name}, format: avro-confluent}}", f"registry.url={registry.url}")
