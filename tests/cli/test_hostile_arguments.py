"""Whatever is typed: a sentence and an exit code, never a traceback."""

import io
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidemark
from tidemark.cli.main import main
from tidemark.failure import ExitCode

VALUES = [
    *("", " ", "-", "--", "-1", "0", "2147483647", "2147483648", "4294967297", "100001", "40000"),
    *("9223372036854775807", "9223372036854775808", "99999999999999999999", "-9223372036854775809"),
    *(
        "9" * 5000,
        "1e9",
        "nan",
        "inf",
        "1e-30",
        "²",
        "٣",
        "é",
        "\udcff",
        "x" * 300,
        "x" * 70_000,
        "a\nb",
        "a b",
        ".",
        "..",
    ),
    *(
        "=",
        "a=",
        "=b",
        "a=\udcff",
        ":",
        ",",
        "1:,",
        "0:99999999999",
        "t:",
        "t:0,99999999999",
        "{}",
        "[::1",
        "host:99999",
    ),
    *("s@", "s@0001-01-01T00:00+23:59", "s@9999-12-31T23:59-23:59", "s@99999999999999999999", "()", "%s", "/dev/null"),
]
LINES = [
    "topics create {}",
    "topics create --topic {}",
    "topics create t-create --if-not-exists --validate-only -p {}",
    "topics create t-create --if-not-exists --validate-only -r {}",
    "topics create t-create --if-not-exists --validate-only --assign {}",
    "topics create t-create --if-not-exists --validate-only -c {}",
    "topics create t-create --if-not-exists --validate-only -c retention.ms={}",
    "topics list --timeout {}",
    "topics list -b {}",
    "topics list -X {}",
    "topics describe {}",
    "topics alter t --validate-only {}",
    "topics alter t -c retention.ms={}",
    "topics alter t -c {}",
    "topics alter t --delete-config {}",
    "topics alter {} -p 1",
    "topics delete {}",
    "produce {} --timeout 0.2",
    "produce t -p {}",
    "produce t -K {}",
    "produce t -k {}",
    "produce t -H {}",
    "produce t --timeout {}",
    "consume {} -e",
    "consume t -e -p {}",
    "consume t -e -o {}",
    "consume t -e --from-beginning -n {}",
    "groups describe -g {}",
    "groups delete -g {}",
    "groups reset-offsets -g {} -t t --to-earliest",
    "groups reset-offsets -g g -t {} --to-earliest",
    "groups reset-offsets -g g -t t --to-offset {}",
    "groups reset-offsets -g g -t t --shift-by {}",
    "groups reset-offsets -g g -t t --to-datetime {}",
    "lag -g {}",
    "transactions list --state {}",
    "transactions list --producer-id {}",
    "transactions list --longer-than-ms {}",
    "transactions list --pattern {}",
    "transactions describe --id {}",
    "transactions find-hanging --topic {}",
    "transactions find-hanging --older-than-ms {}",
    "transactions abort --topic {} --partition 0 --start-offset 0",
    "transactions abort --topic t --partition {} --start-offset 0",
    "transactions abort --topic t --partition 0 --start-offset {}",
    "transactions abort --topic t --partition 0 --producer-id {}",
    "cluster status -b {}",
    "cluster status --timeout {}",
    "cluster reassign --topic {} --to 0",
    "cluster reassign --topic t --to {}",
    "cluster reassign --topic t --partition {} --to 0",
    "cluster reassign --file {}",
    "cluster reassign --topic t --to 0 --throttle {}",
    "cluster reassign --topic t --to 0 --wait {}",
    "cluster give-vote --broker {}",
    "cluster decommission --broker {}",
    "recover-quorum --config {}",
    "recover-quorum --set {}",
    "recover-quorum --set node.id={}",
    "start --nodes {} --set listeners=PLAINTEXT://127.0.0.1:0",
    "start --config {} --set no.such.setting.at.all=1 --set listeners=x",
    "start --set node.id={} --set listeners=x",
    "{}",
    "topics {}",
    "--{}",
]


@pytest.fixture(autouse=True)
def _no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def local_only(host: str, *rest: Any, **more: Any) -> Any:
        if host != "127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", local_only)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with tidemark.embedded(auto_create_topics_enable=False) as running:
        assert main(["topics", "create", "t", "-b", running.bootstrap]) == 0
        yield running.bootstrap


def exit_code(argv: list[str]) -> object:
    try:
        return main(argv)
    except SystemExit as exited:  # how the parser ends
        return exited.code


@pytest.mark.parametrize("line", LINES)
def test_every_argument_ends_in_an_exit_code_that_is_documented(
    line: str, broker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMARK_BOOTSTRAP", broker)
    for value in VALUES:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a record\n")))
        argv = [word.replace("{}", value) for word in line.split()]
        code = exit_code(argv)
        assert code in set(ExitCode), argv
        told = capsys.readouterr().err
        assert "Traceback" not in told, argv
        assert code == 0 or told.strip(), argv
