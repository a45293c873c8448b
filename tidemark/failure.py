"""How a command fails, here and in the pipeline: one sentence for people, one exit code for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command; docs/cli.md documents them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    INTERRUPTED = 130


class CommandFailed(Exception):
    """The command cannot do what was asked; the message is a sentence."""

    def __init__(self, message: str, *, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def all_failures(failures: Iterable[CommandFailed]) -> CommandFailed:
    """Several failures as one, a line each: one bad name does not hide the others."""
    listed = list(failures)
    return CommandFailed("\ntidemark: ".join(map(str, listed)), code=listed[0].code)
