"""How the pipeline fails: one sentence for the person, one exit code for the script."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The same codes as the rest of the `tidemark` command; docs/cli.md documents them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    INTERRUPTED = 130


class PipelineFailed(Exception):
    """The pipeline cannot do what was asked; the message is a sentence."""

    def __init__(self, message: str, *, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code
