"""Commands as the documents that this system comes from write them, typed word for word at a cluster of three nodes."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.ports import free_ports

from tidemark.cli.nodes import READY

READY_SECONDS_MAX = 60.0
Type = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bootstrap address of three nodes."""
    first = free_ports(6)
    command = [sys.executable, "-m", "tidemark.cli.main", "start", "--nodes", "3"]
    command += ["--set", f"listeners=PLAINTEXT://127.0.0.1:{first}"]
    command += ["--set", f"log.dirs={tmp_path_factory.mktemp('data')}"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        give_up = threading.Timer(READY_SECONDS_MAX, process.kill)
        give_up.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            give_up.cancel()
            if not line.startswith(READY):
                log.seek(0)
                pytest.fail(f"not ready: {line!r}\n{log.read()[-5000:]}")
            yield f"127.0.0.1:{first}"
        finally:
            give_up.cancel()
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.fixture
def run(cluster: str) -> Type:
    """Type a line at a shell, with the broker's address in the environment. It must end with exit code 0."""

    def run(line: str, *, stdin: str = "") -> str:
        streaming_system = Path(sys.executable).parent / "streaming-system"
        words = [str(streaming_system) if word == "streaming-system" else word for word in shlex.split(line)]
        environment = {**os.environ, "TIDEMARK_BOOTSTRAP": cluster}
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=60, env=environment)
        assert (done.returncode, done.stderr.replace(DRY_RUN, "")) == (0, "")
        return done.stdout

    return run


DRY_RUN = "tidemark: nothing was changed; run it with --execute to make the change.\n"


def test_the_commands_of_the_documents_work_as_written(run: Type) -> None:
    run("streaming-system topics create --name events --partitions 3 --replication-factor 3")
    described = run("streaming-system topics describe --name events")
    assert described.count("Partition ") == 3
    assert "Replicas=[" in described
    run("streaming-system topics alter --name events --partitions 6")
    assert run("streaming-system topics describe --name events").count("Partition ") == 6

    run("streaming-system produce --topic events", stdin="one\ntwo\n")
    read = "streaming-system consume --topic events --group G --from-beginning --max-messages 2"
    assert sorted(run(read).split()) == ["one", "two"]
    assert "G" in run("streaming-system groups list").split()
    assert "events" in run("streaming-system groups describe --group G")
    assert "events" in run("streaming-system lag --group G")
    run("streaming-system groups reset-offsets --group G --topic events --to-earliest")
    run("streaming-system groups reset-offsets --group G --topic events --to-earliest --execute")
    lags = [line.split()[5] for line in run("streaming-system lag --group G").splitlines()[1:]]
    assert sum(map(int, lags)) == 2

    nodes = run("streaming-system cluster status").splitlines()[-3:]
    assert [line.split()[3] for line in nodes] == ["up", "up", "up"]
    assert "in sync" in run("streaming-system cluster under-replicated")


@pytest.mark.parametrize("spelling", ["--bootstrap", "--bootstrap-server", "--bootstrap-servers", "-b"])
def test_the_brokers_are_named_as_kafkas_own_tools_do(run: Type, cluster: str, spelling: str) -> None:
    run(f"env TIDEMARK_BOOTSTRAP=127.0.0.1:1 streaming-system topics list {spelling} {cluster}")


def test_topics_are_named_by_option_wherever_they_are_named_by_position(run: Type) -> None:
    run("streaming-system topics create --topic spelled --partitions 1")
    run("streaming-system topics alter --topic spelled --config retention.ms=60000")
    assert "retention.ms = 60000" in run("streaming-system topics describe --topic spelled")
    run("streaming-system produce --topic spelled", stdin="word\n")
    assert run("streaming-system consume --topic spelled --from-beginning -e") == "word\n"
    run("streaming-system topics delete --topic spelled")
    run("streaming-system topics create --name pinned --replica-assignment 1:2,2:3")
    run("streaming-system topics delete pinned")
