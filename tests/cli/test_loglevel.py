"""`tidemark loglevel`, against a broker in this process."""

from __future__ import annotations

import json
import logging

import pytest

import tidemark
from tidemark.cli.main import main
from tidemark.failure import ExitCode


def test_levels_are_shown_changed_and_reset(capsys: pytest.CaptureFixture[str]) -> None:
    with tidemark.embedded() as broker:

        def run(*words: str) -> int:
            capsys.readouterr()
            return main(["loglevel", *words, "-b", broker.bootstrap])

        before = logging.getLogger("tidemark.broker.node").getEffectiveLevel()
        assert run() == ExitCode.OK
        assert "tidemark.requests" in capsys.readouterr().out
        assert run("tidemark.broker.node", "trace", "--json") == ExitCode.OK
        [levels] = json.loads(capsys.readouterr().out).values()
        assert levels == {"tidemark.broker.node": "TRACE"}
        assert run("tidemark.broker.node", "--reset") == ExitCode.OK
        assert logging.getLogger("tidemark.broker.node").getEffectiveLevel() == before
        assert run("no.such.logger", "DEBUG") == ExitCode.FAILED
        assert "no logger no.such.logger" in capsys.readouterr().err
        assert run("root", "INFO", "--broker", "77") == ExitCode.NOT_FOUND
        assert run("--reset") == ExitCode.USAGE
