"""A sink's new name is not taken for a new sink where it would write everything again."""

from pathlib import Path

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.graph import all_sinks
from tidemark.pipeline.renamed import NOTE, require_not_renamed
from tidemark.pipeline.spec import load

YAML = """\
name: shop
sources:
  orders: {topic: orders, format: string, dead_letter_topic: bad}
sinks:
"""
TABLE, TOPIC = "lake: {type: delta, from: orders, path: lake/orders}", "copy: {from: orders, topic: copied}"


def started_with(directory: Path, *sinks: str) -> None:
    (directory / "shop.yaml").write_text(YAML + "".join(f"  {each}\n" for each in sinks))
    pipeline = load(directory / "shop.yaml")
    require_not_renamed(all_sinks(pipeline), Checkpoint(pipeline.checkpoint))


@pytest.mark.parametrize("sink", [TABLE, TOPIC])
def test_a_sink_with_another_name_and_the_same_output_is_refused(tmp_path: Path, sink: str) -> None:
    renamed = f"other{sink[4:]}"
    started_with(tmp_path, TABLE, TOPIC)
    started_with(tmp_path, TABLE, TOPIC, renamed)  # a second one to the same place is somebody's wish
    kept = TOPIC if sink == TABLE else TABLE
    (tmp_path / "checkpoints" / "shop" / NOTE).unlink()
    started_with(tmp_path, TABLE, TOPIC)
    for sinks in ([kept, renamed], [kept], [kept, renamed]):  # also when it was left out for a while
        if renamed in sinks:
            with pytest.raises(CommandFailed, match=rf"sinks\.other: sinks\.{sink[:4]}, .* has written to the \w+ "):
                started_with(tmp_path, *sinks)
        else:
            started_with(tmp_path, *sinks)
    started_with(tmp_path, TABLE, TOPIC)


def test_it_may_be_let_through(tmp_path: Path) -> None:
    started_with(tmp_path, TABLE)
    note = Checkpoint(str(tmp_path / "checkpoints" / "shop"))
    note.write_note(NOTE, {})
    started_with(tmp_path, f"other{TABLE[4:]}")
    assert "other" in note.read_note(NOTE)
