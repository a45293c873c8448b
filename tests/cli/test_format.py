from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.cli.main import main
from tidemark.failure import ExitCode


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Of node 3 of a cluster, whose metadata is lost."""
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=a-cluster\nnode.id=3\n")
    return tmp_path


def run(data: Path, *arguments: str, node_id: int = 3) -> int:
    return main(["format", "--set", f"log.dirs={data}", "--set", f"node.id={node_id}", *arguments])


def test_without_yes_it_only_says_what_it_would_do(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data) == ExitCode.OK
    assert "With --yes, node 3 joins cluster a-cluster again, without a vote." in capsys.readouterr().out
    assert not (data / "tidemark-metadata").exists()


def test_a_second_time_is_refused_with_a_sentence(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "--yes") == ExitCode.OK
    assert (data / "tidemark-metadata" / "rejoin").exists()
    assert run(data, "--yes") == ExitCode.FAILED
    assert "is formatted already: start node 3" in capsys.readouterr().err


def test_a_directory_that_holds_metadata_is_not_formatted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "tidemark-metadata").mkdir()
    (data / "tidemark-metadata" / "journal").write_bytes(b"entries")
    assert run(data, "--yes") == ExitCode.FAILED
    assert "holds the metadata of node 3: it is not formatted" in capsys.readouterr().err
    assert not (data / "tidemark-metadata" / "rejoin").exists()


def test_a_new_node_needs_no_formatting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--yes") == ExitCode.FAILED
    assert "it can be started as it is" in capsys.readouterr().err


def test_a_directory_that_is_missing_or_another_nodes_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data / "missing", "--yes") == ExitCode.FAILED
    assert f"there is no data directory {data / 'missing'}" in capsys.readouterr().err
    assert run(data, "--yes", node_id=4) == ExitCode.FAILED
    assert "belong to node 3, and this is node 4" in capsys.readouterr().err
    assert not (data / "missing").exists()
