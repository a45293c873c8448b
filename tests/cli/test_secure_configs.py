"""The configurations that ship start as they are, by one command, and what docs/security.md says to type then works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.ports import free_ports

from tidemark.cli.main import main

ROOT = Path(__file__).parents[2]
READY_SECONDS_MAX = 60.0


@contextmanager
def started(directory: Path, *words: str) -> Iterator[None]:
    """`tidemark start` in a directory of its own, until it is ready, and after that until it is done."""
    command = [sys.executable, "-m", "tidemark.cli.main", "start", *words]
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        give_up = threading.Timer(READY_SECONDS_MAX, process.kill)
        give_up.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Tidemark is ready"), (directory / "log").read_text()[-5000:]
            give_up.cancel()
            yield
        finally:
            give_up.cancel()
            process.send_signal(signal.SIGINT)
            process.wait(60)


def documented(heading: str) -> list[str]:
    """The commands of one section of docs/security.md, without what they print."""
    text = (ROOT / "docs" / "security.md").read_text()
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return list(re.findall(r"```\n(.*?)```", section, re.DOTALL))


def test_the_walk_from_nothing_to_tls_users_and_rights(tmp_path: Path) -> None:
    start, administer, use = documented("From nothing to TLS, users and rights")
    (tmp_path / "config").symlink_to(ROOT / "config")
    port = free_ports(6)
    words = start.split()[2:]
    assert start.split()[:2] == ["tidemark", "start"]
    with started(tmp_path, *words, "--set", f"listeners=SASL_SSL://127.0.0.1:{port}"):
        typed(tmp_path, administer, port=port, stdin="ann-secret\nann-secret\n")
        told = typed(tmp_path, use, port=port, TIDEMARK_PASSWORD="ann-secret")
    expected = [line.strip() for line in use.splitlines() if line.startswith(" ")]
    assert all(line in told for line in ("hello", *expected)), told
    passwords = [(tmp_path / "certs" / f"{name}.password").read_text().strip() for name in ("node", "client")]
    assert not any(secret in (tmp_path / "log").read_text() for secret in (*passwords, "ann-secret"))


def typed(directory: Path, block: str, *, port: int, stdin: str = "", **environment: str) -> str:
    """Everything that the commands say."""
    commands = "".join(line for line in block.splitlines(keepends=True) if not line.startswith(" "))
    bin_directory = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-c", commands.replace("9093", str(port))],
        cwd=directory,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}", **environment},
        check=False,
    )
    return done.stdout


def test_the_single_node_with_tls_starts_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_ports(2)
    at = f"SSL://127.0.0.1:{port},SASL_SSL://127.0.0.1:{port + 1}"
    words = ["--config", str(ROOT / "config" / "secure.yaml"), "--make-certs", "certs"]
    with started(tmp_path, *words, "--set", f"listeners={at}"):
        certs = tmp_path / "certs"
        by_certificate = ["--tls-ca", str(certs / "ca.pem"), "--tls-cert", str(certs / "client.pem")]
        (tmp_path / "ann").write_text("ann-secret\n")
        create = ["users", "create", "ann", "--new-password-file", str(tmp_path / "ann")]
        assert main([*create, "-b", f"127.0.0.1:{port}", *by_certificate]) == 0
        by_password = ["-b", f"127.0.0.1:{port + 1}", "--tls-ca", str(certs / "ca.pem"), "--user", "ann"]
        assert main(["topics", "list", *by_password, "--password-file", str(tmp_path / "ann")]) == 0
        (tmp_path / "wrong").write_text("guess\n")
        capsys.readouterr()
        assert main(["topics", "list", *by_password, "--password-file", str(tmp_path / "wrong")]) == 1
        assert "refused the login: Authentication failed" in capsys.readouterr().err
