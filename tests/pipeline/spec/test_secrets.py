"""Secrets that stand elsewhere."""

from pathlib import Path

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.spec.secrets import resolve


def test_secrets_come_from_the_environment_files_and_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPE_PASSWORD", "a b")
    (tmp_path / "secret").write_text("from a file\n")
    assert resolve("${env:PIPE_PASSWORD}!", key="k") == "a b!"
    assert resolve(f"${{file:{tmp_path}/secret}}", key="k") == "from a file"
    assert resolve("${command:echo one two}", key="k") == "one two"
    assert resolve("plain $text", key="k") == "plain $text"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${env:NOT_THERE_AT_ALL}", "kafka.x: there is no environment variable NOT_THERE_AT_ALL."),
        ("${file:/not/there}", "kafka.x: /not/there cannot be read: No such file or directory."),
        ("${command:false hunter2}", "kafka.x: the command 'false' failed: exit code 1."),
    ],
)
def test_what_is_missing_is_told_by_its_place(text: str, told: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        resolve(text, key="kafka.x")
    assert str(refused.value) == told
