"""Where a password comes from, when standard input is something else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

import tidemark

ASK = """
import sys
from tidemark.cli.passwords import read_password
print("password:", read_password(None, "Password of ann", stdin_is_data={is_data}))
print("data:", sys.stdin.read().strip())
"""


def at_terminal(command: list[str], *, stdin: str | None, typed: str) -> str:
    """What a command shows at a terminal, perhaps with standard input from elsewhere."""
    pid, terminal = pty.fork()
    if pid == 0:
        if stdin is not None:
            reading, writing = os.pipe()
            os.write(writing, stdin.encode())
            os.close(writing)
            os.dup2(reading, 0)
        os.execv(command[0], command)
    shown = b""
    try:
        while True:
            shown += os.read(terminal, 4096)
            if typed and b"Password of" in shown:
                os.write(terminal, f"{typed}\n".encode())
                typed = ""
    except OSError:  # it has ended
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown.decode()
    return shown.decode()


def test_a_command_asks_for_a_password_once() -> None:
    with tidemark.embedded(security="scram") as broker:
        user, password = (str(broker.client_settings[f"sasl.{name}"]) for name in ("username", "password"))
        words = ["topics", "create", "asked", "-b", broker.bootstrap, "--user", user]
        command = [sys.executable, "-m", "tidemark.cli.main", *words]
        shown = at_terminal(command, stdin=None, typed=password)
    assert shown.count("Password of") == 1


def test_records_from_standard_input_are_not_taken_for_a_password() -> None:
    command = [sys.executable, "-c", ASK.format(is_data=True)]
    shown = at_terminal(command, stdin="first\nsecond\n", typed="secret")
    assert "password: secret" in shown
    assert "data: first\r\nsecond" in shown


@pytest.mark.parametrize(("is_data", "told"), [(True, "There is no terminal"), (False, "password: first")])
def test_without_a_terminal_there_must_be_another_way(is_data: bool, told: str) -> None:
    command = [sys.executable, "-c", ASK.format(is_data=is_data)]
    done = subprocess.run(
        command, input="first\nsecond\n", capture_output=True, text=True, check=False, start_new_session=True
    )
    assert told in done.stdout + done.stderr
