"""A flood of lines is cut, and counted."""

from __future__ import annotations

import logging

import pytest

from tidemark.broker.core.limited_log import LimitedLog


def test_lines_over_the_limit_are_counted_and_told_with_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    limited = LimitedLog(logging.getLogger("test"), clock=lambda: now, lines_max=2, seconds=10)
    for i in range(5):
        limited.warning("line %d", i)
    assert caplog.messages == ["line 0", "line 1"]
    now = 10.0
    limited.warning("line %d", 5)
    assert caplog.messages[2:] == ["3 more lines like these were not logged", "line 5"]
    now = 30.0
    limited.warning("quiet again")
    assert caplog.messages[4:] == ["quiet again"]


def test_notes_do_not_hide_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    limited = LimitedLog(logging.getLogger("test"), clock=lambda: 0.0, lines_max=1, seconds=10)
    limited.info("a note")
    limited.info("another")
    limited.warning("a warning")
    assert caplog.messages == ["a note", "a warning"]
