import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.ports import free_port

from tidemark.cli import topics
from tidemark.cli.broker_process import command, settings_arguments
from tidemark.cli.main import main, parse
from tidemark.failure import CommandFailed, ExitCode


@pytest.fixture
def closed_port() -> int:
    return free_port()


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    "line",
    [
        ["topics", "list"],
        ["topics", "create", "t"],
        ["topics", "describe", "--json"],
        ["topics", "alter", "t", "-p", "3"],
        ["topics", "delete", "t"],
        ["produce", "t"],
        ["consume", "t"],
    ],
)
def test_no_broker_is_one_sentence_and_exit_code_3(
    line: list[str], closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*line, "--bootstrap", f"127.0.0.1:{closed_port}"]) == ExitCode.NOT_REACHABLE
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"tidemark: No broker is reachable at 127.0.0.1:{closed_port}: connection refused.\n")


@pytest.mark.parametrize("line", [["topics", "list"], ["groups", "list"], ["lag"]])
def test_a_server_that_is_no_broker_is_named_as_such(
    line: list[str], silent_server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*line, "--bootstrap", f"127.0.0.1:{silent_server}", "--timeout", "0.3"])
    assert code == ExitCode.NOT_REACHABLE
    assert "did not answer as a Kafka broker in time" in capsys.readouterr().err


def test_one_address_that_answers_is_enough(
    closed_port: int, silent_server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = f"127.0.0.1:{closed_port},127.0.0.1:{silent_server}"
    assert main(["topics", "list", "-b", bootstrap, "--timeout", "0.3"]) == ExitCode.NOT_REACHABLE
    assert "did not answer" in capsys.readouterr().err


def test_a_property_that_librdkafka_does_not_know_is_wrong_usage(
    silent_server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "list", "-b", f"127.0.0.1:{silent_server}", "-X", "no.such=1"]) == ExitCode.USAGE
    assert 'No such configuration property: "no.such".' in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["unknown"],
        ["topics"],
        ["topics", "create"],
        ["topics", "create", "t", "-p", "0"],
        ["topics", "create", "t", "-c", "novalue"],
        ["topics", "create", "t", "--assign", "a:b"],
        ["consume", "t", "-o", "somewhere"],
        ["consume", "t", "-K", ":", "--json"],
        ["consume", "t", "-n", "-1"],
        ["consume", "t", "--timeout", "0"],
        ["produce", "t", "-z", "brotli"],
        ["produce", "t", "-p", "x"],
    ],
)
def test_wrong_usage_is_exit_code_2(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(line)
    assert exited.value.code == ExitCode.USAGE
    assert "usage: tidemark" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        ["topics", "alter", "t"],
        ["topics", "create", "t", "-p", "2", "--assign", "1:2"],
        ["topics", "list", "-b", "host:port"],
        ["topics", "list", "-b", ":9092"],
    ],
)
def test_options_that_do_not_fit_are_wrong_usage_too(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("tidemark: ")


def test_the_bootstrap_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_BOOTSTRAP", "elsewhere:1")
    assert parse(["topics", "list"]).bootstrap == "elsewhere:1"
    assert parse(["topics", "list", "-b", "here:2"]).bootstrap == "here:2"
    monkeypatch.delenv("TIDEMARK_BOOTSTRAP")
    assert parse(["topics", "list"]).bootstrap == "127.0.0.1:9092"


def test_options_reach_their_command() -> None:
    line = ["topics", "create", "a", "b", "-p", "3", "-r", "2", "-c", "retention.ms=5", "--config", "x=y=z"]
    args = parse(line)
    assert (args.run, args.topics, args.partitions, args.replication_factor) == (topics.create, ["a", "b"], 3, 2)
    assert args.configs == [("retention.ms", "5"), ("x", "y=z")]
    assert parse(["topics", "create", "a", "--assign", "1:2,2:1"]).assign == [[1, 2], [2, 1]]


def test_a_node_of_a_cluster_is_a_process_of_its_own_with_the_same_settings() -> None:
    arguments = settings_arguments(config=Path("f.yaml"), settings=["a=b", "c=d"])
    assert command("tidemark.broker", arguments) == [
        *(sys.executable, "-P", "-m", "tidemark.broker"),
        *("--config", "f.yaml", "--set", "a=b", "--set", "c=d"),
    ]


def test_interruption_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(topics, "list_", interrupted)
    assert main(["topics", "list"]) == ExitCode.INTERRUPTED


def test_a_failure_is_one_sentence_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(args: object) -> int:
        raise CommandFailed("It did not work.", code=ExitCode.NOT_FOUND)

    monkeypatch.setattr(topics, "list_", failing)
    assert main(["topics", "list"]) == ExitCode.NOT_FOUND
    assert capsys.readouterr().err == "tidemark: It did not work.\n"


def test_a_reader_that_went_away_is_no_error() -> None:
    code = (
        "import sys, tidemark.cli.topics, tidemark.cli.main\n"
        "tidemark.cli.topics.list_ = lambda args: [print('x' * 100) for _ in range(10000)] and 0\n"
        "sys.exit(tidemark.cli.main.main(['topics', 'list']))\n"
    )
    reader, writer = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


def test_help_and_start_do_not_wait_for_the_kafka_client() -> None:
    code = "import sys, tidemark.cli.main; print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("tidemark 0.")
