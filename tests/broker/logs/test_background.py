"""Lines of the log that a thread writes."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.broker.logs import background
from tidemark.broker.logs.background import TOGETHER_MAX, BackgroundLines
from tidemark.broker.logs.setup import set_up_audit_log, set_up_logs

SECONDS_MAX = 20.0


def tell_lost(count: int) -> str:
    return f"{count} lost\n"


class Reader:
    """Takes nothing until it is let to."""

    def __init__(self) -> None:
        self.is_reading = threading.Event()
        self.is_asked = threading.Event()
        self.text = ""

    def __call__(self, lines: str) -> None:
        self.is_asked.set()
        assert self.is_reading.wait(SECONDS_MAX)
        self.text += lines


def test_lines_are_written_in_their_order() -> None:
    reader = Reader()
    reader.is_reading.set()
    lines = BackgroundLines(reader, tell_lost=tell_lost)
    for number in range(1_000):
        lines.write(f"{number}\n")
    assert lines.drain(SECONDS_MAX)
    assert reader.text == "".join(f"{number}\n" for number in range(1_000))


def test_nobody_waits_for_a_reader_that_takes_nothing_and_what_is_lost_is_told() -> None:
    reader = Reader()
    lines = BackgroundLines(reader, tell_lost=tell_lost, waiting_max=3)
    lines.write("first\n")
    assert reader.is_asked.wait(SECONDS_MAX)
    for number in range(5):
        lines.write(f"{number}\n")
    assert not lines.drain(0.01)
    reader.is_reading.set()
    assert lines.drain(SECONDS_MAX)
    assert reader.text.splitlines() == ["first", "0", "1", "2", "2 lost"]
    lines.write("last\n")
    assert lines.drain(SECONDS_MAX)
    assert reader.text.endswith("2 lost\nlast\n")


def test_what_is_lost_is_told_where_it_is_missing_and_no_line_twice() -> None:
    reader = Reader()
    lines = BackgroundLines(reader, tell_lost=tell_lost, waiting_max=3 * TOGETHER_MAX)
    lines.write("first\n")
    assert reader.is_asked.wait(SECONDS_MAX)
    for number in range(3 * TOGETHER_MAX + 7):
        lines.write(f"{number}\n")
    reader.is_reading.set()
    assert lines.drain(SECONDS_MAX)
    lines.write("last\n")
    assert lines.drain(SECONDS_MAX)
    kept = [str(number) for number in range(3 * TOGETHER_MAX)]
    assert reader.text.splitlines() == ["first", *kept, "7 lost", "last"]


def test_long_lines_that_wait_have_a_limit_in_characters() -> None:
    reader = Reader()
    lines = BackgroundLines(reader, tell_lost=tell_lost, characters_max=1_000)
    lines.write("first\n")
    assert reader.is_asked.wait(SECONDS_MAX)
    for _ in range(9):
        lines.write("x" * 299 + "\n")
    reader.is_reading.set()
    assert lines.drain(SECONDS_MAX)
    assert len(reader.text) < 2_000
    assert reader.text.endswith("5 lost\n")
    for _ in range(9):
        lines.write("y" * 299 + "\n")
        assert lines.drain(SECONDS_MAX), "there is room again"
    assert reader.text.count("y\n") == 9


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, as it is afterwards what it was before."""
    root, audit = logging.getLogger(), logging.getLogger("tidemark.audit")
    before = root.handlers[:], root.level, audit.handlers[:], audit.propagate
    root.handlers.clear()
    yield root
    root.handlers[:], root.level, audit.handlers[:], audit.propagate = before


def test_a_log_of_json_tells_in_json_what_was_lost(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(background, "WAITING_MAX", 0)
    with (tmp_path / "log").open("w") as stream:
        lines = set_up_logs(stream, level="INFO", form="json", node_id=7)
        for number in range(2):
            root.info("%d", number)
        assert lines.drain(SECONDS_MAX)
    told = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert "lines were not written" in told[0]["message"]
    assert (told[0]["level"], told[0]["node"]) == ("WARN", 7)


def test_a_pipe_that_is_full_and_does_not_want_to_be_waited_for_gets_every_line(root: logging.Logger) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with open(reader, encoding="ascii") as taken:
        with open(writer, "w") as stream:
            lines = set_up_logs(stream, level="INFO", form="json", node_id=7)
            for _ in range(90):
                root.info("%s", "x" * 3_000)
            assert not lines.drain(0.05)
            told = [json.loads(taken.readline()) for _ in range(90)]
            assert lines.drain(SECONDS_MAX)
        assert not taken.read()
    assert {each["message"][:3] for each in told} == {"xxx"}


def test_a_log_of_which_nobody_wants_to_know_is_written_nowhere(root: logging.Logger) -> None:
    lines = set_up_logs(None, level="INFO", form="json", node_id=7)
    root.info("line")
    assert lines.drain(SECONDS_MAX)


def test_an_audit_log_tells_in_json_what_was_lost(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(background, "WAITING_MAX", 0)
    path = tmp_path / "audit.log"
    lines = set_up_audit_log(path)
    logging.getLogger("tidemark.audit").warning('{"decision": "denied"}')
    assert lines.drain(SECONDS_MAX)
    (told,) = map(json.loads, path.read_text().splitlines())
    assert told["lost"] == 1
    assert told["time"]


def test_a_reader_that_is_gone_ends_nothing() -> None:
    written: list[str] = []

    def write(lines: str) -> None:
        written.append(lines)
        if len(written) == 1:
            raise BrokenPipeError

    lines = BackgroundLines(write, tell_lost=tell_lost)
    for line in ("a\n", "b\n"):
        lines.write(line)
        assert lines.drain(SECONDS_MAX)
    assert written == ["a\n", "b\n"]


def test_what_the_garbage_collector_frees_in_the_middle_of_a_line_may_log() -> None:
    reader = Reader()
    reader.is_reading.set()
    lines = BackgroundLines(reader, tell_lost=tell_lost)
    log = logging.Logger("test")
    log.addHandler(logging.StreamHandler(lines))

    class Cycle:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            log.info("freed")

    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(200):
            Cycle()
            log.info("line")
    finally:
        gc.set_threshold(*thresholds)
    assert lines.drain(SECONDS_MAX)
    assert reader.text.count("line\n") == 200
    assert "freed\n" in reader.text
