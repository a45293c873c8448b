import socket
from pathlib import Path

import pytest

from tidemark.cli.main import main
from tidemark.failure import ExitCode


def test_a_port_in_use_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        settings = ["--set", f"listeners=PLAINTEXT://{address}", "--set", f"log.dirs={tmp_path}"]
        assert main(["start", *settings]) == ExitCode.FAILED
    assert f"tidemark: cannot listen on {address}: Address already in use\n" in capsys.readouterr().err


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "data"
    settings = ["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", f"log.dirs={path}"]
    assert main(["start", *settings]) == ExitCode.FAILED
    assert f"tidemark: {path}: Not a directory\n" in capsys.readouterr().err
