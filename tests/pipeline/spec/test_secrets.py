"""Secrets that stand elsewhere."""

from pathlib import Path

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.commands import main
from tidemark.pipeline.spec import load
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


YAML = """\
name: shop
kafka: {sasl.password: "${command:false hunter2}"}
registry: {url: "${env:NO_SUCH_REGISTRY}", password: "${file:/not/there}"}
lineage: {url: "${env:NO_SUCH_LINEAGE}"}
sources:
  orders: {topic: orders, format: string}
sinks:
  copy: {from: orders, topic: copied}
"""


def test_where_they_are_not_wanted_they_need_not_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that checks a change has no passwords of the clusters that the pipeline is for."""
    file = tmp_path / "shop.yaml"
    file.write_text(YAML)
    assert main(["validate", str(file), "--offline"]) == 0
    with pytest.raises(CommandFailed, match=r"kafka\.sasl\.password: the command 'false' failed"):
        load(file)
    with pytest.raises(CommandFailed, match=r"registry\.url: there is no environment variable"):  # for cases
        load(file, secrets=["registry"])
    monkeypatch.setenv("NO_SUCH_REGISTRY", "ftp://registry")
    with pytest.raises(CommandFailed, match=r"registry\.url must begin with"):
        load(file, secrets=["registry"], overrides=["registry.password=plain"])
