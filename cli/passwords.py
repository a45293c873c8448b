"""Passwords that commands need: from a file, the environment or the terminal; never from the command line, which
everybody on the machine can read."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Final

from tidemark.failure import CommandFailed, ExitCode

TERMINAL: Final = "/dev/tty"


def read_password(
    file: Path | None,
    prompt: str,
    *,
    variable: str | None = None,
    twice: bool = False,
    stdin_is_data: bool = False,
) -> str:
    """`stdin_is_data`: standard input has what the command is about, whose first line is no password."""
    if file is not None:
        return _not_empty(_from_file(file))
    if variable is not None and variable in os.environ:
        return _not_empty(os.environ[variable])
    if stdin_is_data and not sys.stdin.isatty():
        _require_terminal()
    elif not sys.stdin.isatty():
        return _not_empty(sys.stdin.readline().rstrip("\r\n"))
    password = getpass.getpass(f"{prompt}: ")
    if twice and getpass.getpass("Once more: ") != password:
        raise CommandFailed("The two are not the same.", code=ExitCode.USAGE)
    return _not_empty(password)


def _require_terminal() -> None:
    """getpass asks there, wherever standard input comes from; without one it would read that."""
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise CommandFailed(
            "There is no terminal to ask for the password at: give it by --password-file or $TIDEMARK_PASSWORD.",
            code=ExitCode.USAGE,
        ) from None


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}.", code=ExitCode.USAGE) from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not UTF-8 text.", code=ExitCode.USAGE) from None


def _not_empty(password: str) -> str:
    if not password:
        raise CommandFailed("The password is empty.", code=ExitCode.USAGE)
    return password
