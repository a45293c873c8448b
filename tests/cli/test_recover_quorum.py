from pathlib import Path

import pytest

from tidemark.cli.main import main
from tidemark.failure import ExitCode


@pytest.mark.parametrize("directory", ["missing", "empty"])
def test_recovery_without_data_says_what_is_missing_where(
    tmp_path: Path, directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    path = tmp_path / directory
    assert main(["recover-quorum", "--set", f"log.dirs={path}", "--yes"]) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert told.startswith("tidemark: there is no ")
    assert str(path) in told
    assert "Errno" not in told
    assert not (tmp_path / "missing").exists()


def test_a_settings_file_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recover-quorum", "--config", str(tmp_path / "no.yaml")]) != ExitCode.OK
    told = capsys.readouterr().err
    assert "no.yaml" in told
    assert "Errno" not in told
