"""Lines of the log: one event each, whatever is in it."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.logs.events import TEXT_MAX, about
from tidemark.broker.logs.formats import ConsoleFormatter, JsonFormatter
from tidemark.broker.logs.handler import LimitedHandler

ROOT = Path(__file__).parents[3]
HOSTILE = 'ann\n2026-11-17 10:00:00,000 INFO tidemark: all is well\r\x1b[2J\x00\u2028\u202e"\\\ud800'


def record(message: str, *values: Any, **rest: Any) -> logging.LogRecord:
    level = rest.pop("level", logging.WARNING)
    made = logging.LogRecord(
        "tidemark.test", level, __file__, rest.pop("line", 1), message, values, rest.pop("exc", None)
    )
    for name, value in rest.items():
        setattr(made, name, value)
    return made


def as_json(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter(node_id=7).format(made)
    assert line.isascii()
    assert line.isprintable()
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_event_as_json_says_when_how_serious_where_and_what_it_is_about() -> None:
    event = as_json(record("it ends", **about(listener="PLAINTEXT", client_id="app", correlation_id=3, principal=None)))
    assert event.pop("time").endswith("+00:00")
    assert event == {
        "level": "WARN",
        "logger": "tidemark.test",
        "node": 7,
        "message": "it ends",
        "listener": "PLAINTEXT",
        "client_id": "app",
        "correlation_id": 3,
    }


@pytest.mark.parametrize(
    ("template", "values", "fields"),
    [
        ("%s-%d is offline", ("t", 3), {"topic": "t", "partition": 3}),
        ("%d%% of it: %s of %s-%d failed", (5, "x", "t", 3), {"topic": "t", "partition": 3}),
        ("group %s is at generation %d", ("g", 4), {"group": "g"}),
        ("broker %d is fenced: %s", (2, "why"), {"broker": 2}),
        ("%s: nothing known", ("t-3",), {}),
    ],
)
def test_what_a_line_is_about_is_found_in_its_words(template: str, values: tuple[Any, ...], fields: Any) -> None:
    event = as_json(record(template, *values))
    assert {name: event[name] for name in ("topic", "partition", "group", "broker") if name in event} == fields


def test_no_client_writes_lines_of_its_own_or_moves_the_cursor() -> None:
    hostile = about(client_id=HOSTILE)
    assert as_json(record("from %s", HOSTILE, **hostile))["message"] == f"from {HOSTILE}"
    line = ConsoleFormatter().format(record("from %s", HOSTILE, **hostile))
    assert line.isprintable()
    assert "client_id=ann\\n2026" in line


def test_an_exception_is_a_field_or_lines_that_are_indented() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        made = record("it failed", exc=sys.exc_info())
    assert "ValueError" in as_json(made)["exception"]
    first, *others = ConsoleFormatter().format(made).split("\n")
    assert first.endswith("it failed")
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)


def test_lines_have_a_length_that_they_do_not_exceed() -> None:
    event = as_json(record("%s", "x" * 1_000_000, **about(client_id="y" * 30_000)))
    assert len(json.dumps(event)) < TEXT_MAX + 1_000


def test_a_field_does_not_take_the_place_of_the_events_own() -> None:
    assert as_json(record("m", **about(node=99, level="x")))["node"] == 7


def test_of_one_place_in_the_program_no_more_lines_are_written_than_the_limit_and_the_others_are_counted() -> None:
    out = io.StringIO()
    handler = LimitedHandler(out, lines_max=3, seconds=10)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    for i in range(50):
        handler.handle(record("flood %d", i, created=100.0, line=1))
        handler.handle(record("debug %d", i, created=100.0, line=2, level=logging.DEBUG))
    handler.handle(record("another place", created=101.0, line=3))
    handler.handle(record("later", created=111.0, line=3))
    lines = out.getvalue().splitlines()
    assert [line for line in lines if "flood" in line] == ["WARNING flood 0", "WARNING flood 1", "WARNING flood 2"]
    assert len([line for line in lines if "debug" in line]) == 50
    assert lines[-3:] == [
        "WARNING another place",
        "WARNING 47 more lines like those before were not logged",
        "WARNING later",
    ]


def test_a_line_can_be_written_when_no_file_can_be_opened_any_more() -> None:
    """Python loads some codecs from their files when they are first used."""
    code = """
        import os, resource
        from tidemark.broker.logs.events import printable
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        assert printable("a\\nb") == "a\\\\nb"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60, cwd=ROOT)
