"""Every API that is served has a file of tests, so that none is forgotten."""

from __future__ import annotations

from pathlib import Path

from tidemark.broker.core.api_table import api_table

HERE = Path(__file__).parent


def test_every_handler_has_a_file_of_tests() -> None:
    missing = [entry.module for entry in api_table().values() if not (HERE / f"test_{entry.module}.py").exists()]
    assert not missing


def test_every_file_of_tests_has_at_least_one_test() -> None:
    empty = [path.name for path in HERE.glob("test_*.py") if "def test_" not in path.read_text()]
    assert not empty
