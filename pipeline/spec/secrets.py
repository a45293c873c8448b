"""Secrets that do not stand in the file itself, nor on a command line that others can see:

${env:NAME}           an environment variable
${file:/path}         a file's contents, without the line end
${command:program …}  what a program prints (a password manager's), without the line end; no shell is started
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from tidemark.failure import CommandFailed, ExitCode

COMMAND_SECONDS_MAX = 30
_REFERENCE = re.compile(r"\$\{(?P<kind>env|file|command):(?P<place>[^{}]+)\}")


def resolve(text: str, *, key: str) -> str:
    """The text with what it refers to in its place. What goes wrong is told by its place, never by the secret."""
    return _REFERENCE.sub(lambda found: _KINDS[found["kind"]](found["place"], key), text)


def refers(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def _of_environment(name: str, key: str) -> str:
    if name not in os.environ:
        raise _refusal(key, f"there is no environment variable {name}")
    return os.environ[name]


def _of_file(place: str, key: str) -> str:
    try:
        return Path(place).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal(key, f"{place} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _of_command(line: str, key: str) -> str:
    words = shlex.split(line)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        why = f"exit code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise _refusal(key, f"the command {words[0]!r} failed: {why}") from None
    return done.stdout.rstrip("\r\n")


_KINDS = {"env": _of_environment, "file": _of_file, "command": _of_command}


def _refusal(key: str, why: str) -> CommandFailed:
    return CommandFailed(f"{key}: {why.rstrip('.')}.", code=ExitCode.USAGE)
