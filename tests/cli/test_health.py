"""`tidemark health` and `tidemark cluster status --http`, typed at a broker."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
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
    done = run("cluster", "status", "-b", process.bootstrap, "--http", url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[3].split()[-1] == "ready"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_status_of_a_cluster_fails_if_a_node_that_was_named_does_not_answer(
    broker: tuple[Tidemark, str], form: tuple[str, ...]
) -> None:
    process, url = broker
    silent = f"http://127.0.0.1:{free_port()}"
    done = run("cluster", "status", "-b", process.bootstrap, "--http", silent, "--http", url, *form)
    assert done.returncode == ExitCode.NOT_REACHABLE, "as `tidemark health` has it"
    assert f"{silent} does not answer" in done.stderr
    if form:
        statuses = [each["status"] for each in json.loads(done.stdout)["readiness"]]
        assert "does not answer" in statuses[0]
        assert statuses[1] == "ready"
    else:
        assert done.stdout.splitlines()[3].split()[-1] == "ready", "what is known is shown all the same"


NOT_READY = {"node_id": 0, "status": "not ready", "checks": {"lease": "this node holds no lease", "logs": "ok"}}


@pytest.mark.parametrize(
    ("document", "code", "told"),
    [
        (NOT_READY, ExitCode.FAILED, "node 0: lease: this node holds no lease"),
        (["something", "else"], ExitCode.NOT_REACHABLE, "does not answer: it is no node of Tidemark's"),
        ({"error": "no such page"}, ExitCode.NOT_REACHABLE, "does not answer: it is no node of Tidemark's"),
    ],
)
def test_the_status_of_a_cluster_fails_if_a_node_is_not_ready_or_something_else_answers(
    broker: tuple[Tidemark, str], document: object, code: ExitCode, told: str
) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = run("cluster", "status", "-b", broker[0].bootstrap, "--http", url)
        server.shutdown()
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr


def test_a_folder_that_cannot_be_opened_ends_the_start_with_1_and_bad_settings_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    failed = run("start", "--set", f"log.dirs={tmp_path / 'file'}", "--set", "listeners=PLAINTEXT://127.0.0.1:0")
    assert failed.returncode == ExitCode.FAILED
    assert str(tmp_path / "file") in failed.stderr.splitlines()[-1]
    assert run("start", "--set", "http.listeners=HTTP://127.0.0.1:9092").returncode == ExitCode.USAGE
