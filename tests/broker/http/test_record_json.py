"""A record as JSON: the short way and the long way read the same."""

import json
from typing import Any

import pytest

from tidemark.broker.core.sliced_work import at_once
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.record_json import record_of, simple_record

SIMPLE = [
    {"value": "x"},
    {"value": {"a": [1, 2.5, None, "é"]}},
    {"key": "k", "value": 17},
    {"key": None, "value": None},
    {"key": "é"},
    {"value": "é" * 1000},
    {"value": "x" * 1000},
    {"value": "x" * 1000 + '"'},
    {"value": "\\" + "x" * 1000},
    {"value": "x" * 1000 + "\x1f\x7f\u2028"},
    {},
]
OTHERS: list[Any] = [
    {"value": "x", "value_format": "string"},
    {"key": 1, "value": 1},
    {"key": "\ud800"},
    {"value": "\ud800"},
    {"value": json.loads("1e999")},
    {"value": 1, "headers": {"a": "b"}},
    {"value": [[0]] * 3_000},
    {"values": 1},
    [],
    "x",
]


@pytest.mark.parametrize("given", SIMPLE, ids=range(len(SIMPLE)))
def test_a_simple_record_is_the_same_either_way(given: dict[str, Any]) -> None:
    assert (None, simple_record(given, now_ms=5)) == at_once(record_of(given, now_ms=5, where="record"))


@pytest.mark.parametrize("given", OTHERS, ids=range(len(OTHERS)))
def test_what_has_more_or_is_wrong_goes_the_long_way(given: Any) -> None:
    assert simple_record(given, now_ms=5) is None


def test_what_is_wrong_is_said() -> None:
    wrong: list[Any] = [{"key": "\ud800"}, {"value": "\ud800"}, {"value": json.loads("1e999")}, {"values": 1}, []]
    for given in wrong:
        with pytest.raises(Problem):
            at_once(record_of(given, now_ms=5, where="record"))
