"""Spark's checkpoint, read and judged."""

from pathlib import Path

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.checkpoint import Checkpoint

OFFSETS = 'v1\n{"batchWatermarkMs":0,"conf":{"a":"b"}}\n{"clicks":{"0":12,"1":7}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    sink = tmp_path / "sinks" / "out"
    for folder, files in (("offsets", {"0": OFFSETS, "1": OFFSETS.replace("12", "30")}), ("commits", {"0": "v1\n{}"})):
        (sink / folder).mkdir(parents=True)
        for name, text in files.items():
            (sink / folder / name).write_text(text)
    (sink / "metadata").write_text('{"id":"7"}')
    return Checkpoint(str(tmp_path))


def test_the_position_is_that_of_the_last_finished_batch(checkpoint: Checkpoint) -> None:
    checkpoint.require_sound("out")
    assert checkpoint.last_batch("out") == 0
    assert checkpoint.positions("out") == {("clicks", 0): 12, ("clicks", 1): 7}


def test_a_sink_that_never_ran_has_no_position(checkpoint: Checkpoint) -> None:
    checkpoint.require_sound("other")
    assert checkpoint.positions("other") == {}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("commits/0", ""),
        ("metadata", "{"),
        ("offsets/1", ""),
        ("offsets/1", "v1\n{}\n{oops"),
        ("offsets/1", "\x00\x00\x00\x00"),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(checkpoint: Checkpoint, file: str, text: str) -> None:
    (checkpoint.path / "sinks" / "out" / file).write_text(text)
    with pytest.raises(CommandFailed) as refused:
        checkpoint.require_sound("out")
    assert file in str(refused.value)
    assert "Restore the checkpoint's directory from a copy that was made after" in str(refused.value)


def test_missing_metadata_and_missing_offsets_are_damage(checkpoint: Checkpoint) -> None:
    (checkpoint.path / "sinks" / "out" / "commits" / "5").write_text("v1\n{}")
    with pytest.raises(CommandFailed, match="finished, but what it read is not recorded"):
        checkpoint.require_sound("out")
    (checkpoint.path / "sinks" / "out" / "metadata").unlink()
    with pytest.raises(CommandFailed, match="metadata: it is missing"):
        checkpoint.require_sound("out")


def test_notes_survive_and_remote_places_are_left_alone(tmp_path: Path) -> None:
    here = Checkpoint(str(tmp_path / "new"))
    here.write_note("n.json", {"a": 1})
    assert here.read_note("n.json") == {"a": 1}
    there = Checkpoint("s3a://bucket/x")
    there.write_note("n.json", {"a": 1})
    assert (there.read_note("n.json"), there.of_sink("s")) == ({}, "s3a://bucket/x/sinks/s")


def test_a_note_that_is_no_object_is_damage(tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text("[1]")
    with pytest.raises(CommandFailed, match=r"n\.json: it is not a JSON object"):
        Checkpoint(str(tmp_path)).read_note("n.json")
