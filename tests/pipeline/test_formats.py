"""Avro and CSV as a source's format: good records become columns, malformed ones are counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.pipeline.formats import all_null_avro
from tidemark.pipeline.generators.generated_record import GeneratedRecord

if TYPE_CHECKING:
    from tests.pipeline.conftest import Trial

Committed = Callable[[str], list[GeneratedRecord]]
AVRO = {
    "type": "record",
    "name": "thing",
    "fields": [{"name": "n", "type": "long"}, {"name": "word", "type": "string"}],
}


def avro(number: int, word: bytes) -> bytes:
    """Zigzag numbers, and a length before the text; small ones only."""
    assert number < 64 > len(word)
    return bytes([number << 1, len(word) << 1]) + word


def values(found: list[GeneratedRecord]) -> list[dict[str, object]]:
    return [json.loads(each.value or b"") for each in found]


def test_avro(trial: Trial, committed: Committed) -> None:
    trial.produce(avro(7, b"seven"), b"\x02\x7fno", avro(8, b"eight"))
    runner = trial.run("sources.things.format=avro", f"sources.things.schema={json.dumps(AVRO)}")
    assert values(committed(f"{trial.name}-out")) == [{"n": 7, "word": "seven"}, {"n": 8, "word": "eight"}]
    assert sum(runner.metrics.malformed.values()) == 1


def test_an_avro_record_of_nulls_is_no_malformed_one(trial: Trial, committed: Committed) -> None:
    fields = [{"name": "n", "type": ["null", "long"]}, {"name": "word", "type": ["string", "null"]}]
    trial.produce(b"\x00\x02", b"\x7f", b"\x02\x08\x02")
    runner = trial.run("sources.things.format=avro", f"sources.things.schema={json.dumps({**AVRO, 'fields': fields})}")
    assert values(committed(f"{trial.name}-out")) == [{}, {"n": 4}]
    assert sum(runner.metrics.malformed.values()) == 1


def test_how_nulls_are_written() -> None:
    assert all_null_avro([["null", "long"], "null", ["string", "int", "null"]]) == b"\x00\x04"
    assert all_null_avro([["null", "long"], "long"]) is None


def test_csv_with_a_schema_and_an_option(trial: Trial, committed: Committed) -> None:
    trial.produce(b"1;one", b"x;no number", b'2;"two; or so"')
    described = ["sources.things.format=csv", "sources.things.schema={n: LONG, word: STRING}"]
    runner = trial.run(*described, "sources.things.options={delimiter: ;}")
    assert values(committed(f"{trial.name}-out")) == [{"n": 1, "word": "one"}, {"n": 2, "word": "two; or so"}]
    assert sum(runner.metrics.malformed.values()) == 1


def test_csv_whose_columns_are_inferred(trial: Trial, committed: Committed) -> None:
    trial.produce(b"1,one,0.5", b"2,two,1.5")
    trial.run("sources.things.format=csv")
    assert values(committed(f"{trial.name}-out")) == [
        {"c0": 1, "c1": "one", "c2": 0.5},
        {"c0": 2, "c1": "two", "c2": 1.5},
    ]
