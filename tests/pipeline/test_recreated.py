"""Topics that were deleted and made anew."""

from pathlib import Path

from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.recreated import TopicIds, recreated, sentence


def test_another_id_is_another_topic_and_a_new_or_missing_topic_is_none() -> None:
    assert recreated(before={"a": "1", "b": "2", "gone": "3"}, now={"a": "1", "b": "9", "new": "4"}) == ["b"]


def test_ids_are_kept_beside_the_checkpoint(tmp_path: Path) -> None:
    TopicIds(Checkpoint(str(tmp_path))).keep({"a": "1"})
    again = TopicIds(Checkpoint(str(tmp_path)))
    assert again.changed({"a": "1"}) == []
    assert again.changed({"a": "2"}) == ["a"]


def test_what_will_not_be_read_is_named() -> None:
    told = sentence(["a"], {("a", 0): 500, ("a", 1): 0, ("b", 0): 7})
    assert told.endswith("is not read: a-0 below 500")
