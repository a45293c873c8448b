"""Running the broker's own programs: in this process, or as the command line of another one.

The command line imports no broker code, since it is a client like any other. `tidemark start` is the exception, and so
loads the program by its name: a second interpreter would cost each start 50 ms.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def run_here(module: str, arguments: list[str]) -> int:
    sys.stdout.flush()
    code: int = importlib.import_module(module).main(arguments)
    return code


def command(module: str, arguments: list[str]) -> list[str]:
    """-P: what stands in the directory where the user is must not be taken for one of Python's modules."""
    return [sys.executable, "-P", "-m", module, *arguments]


def settings_arguments(*, config: Path | None, settings: list[str]) -> list[str]:
    arguments = [] if config is None else ["--config", str(config)]
    for setting in settings:
        arguments += ["--set", setting]
    return arguments
