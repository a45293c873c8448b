"""`tidemark health` and `tidemark cluster status --http`, typed at a broker."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.broker_process import Tidemark
from harness.ports import free_port

from tidemark.failure import ExitCode


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tidemark, str]]:
    port = free_port()
    settings = {"http.listeners": f"HTTP://127.0.0.1:{port}"}
    process = Tidemark(tmp_path_factory.mktemp("data"), settings=settings)
    process.start()
    yield process, f"http://127.0.0.1:{port}"
    process.stop()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidemark.cli.main", *words], capture_output=True, text=True, timeout=60
    )


def test_a_node_that_is_ready_says_so(broker: tuple[Tidemark, str]) -> None:
    done = run("health", broker[1])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "node 0 is ready"
    assert json.loads(run("health", broker[1], "--json").stdout)["checks"]["lease"] == "ok"


def test_a_node_that_does_not_answer_has_an_exit_code_of_its_own() -> None:
    done = run("health", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == ExitCode.NOT_REACHABLE
    assert "does not answer" in done.stderr
    assert run("health", "ftp://127.0.0.1").returncode == ExitCode.USAGE


def test_the_status_of_a_cluster_shows_which_nodes_are_ready(broker: tuple[Tidemark, str]) -> None:
    process, url = broker
    done = run("cluster", "status", "-b", process.bootstrap, "--http", url, "--http", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[3].split()[-1] == "ready"
    assert "does not answer" in done.stdout


def test_a_folder_that_cannot_be_opened_ends_the_start_with_1_and_bad_settings_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    failed = run("start", "--set", f"log.dirs={tmp_path / 'file'}", "--set", "listeners=PLAINTEXT://127.0.0.1:0")
    assert failed.returncode == ExitCode.FAILED
    assert str(tmp_path / "file") in failed.stderr.splitlines()[-1]
    assert run("start", "--set", "http.listeners=HTTP://127.0.0.1:9092").returncode == ExitCode.USAGE
