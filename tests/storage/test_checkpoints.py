from __future__ import annotations

import pytest

from tidemark.storage.checkpoints import (
    read_offsets,
    read_partition_metadata,
    read_properties,
    topic_id_bytes,
    topic_id_text,
    write_offsets,
    write_partition_metadata,
    write_properties,
)
from tidemark.storage.errors import CorruptFile
from tidemark.storage.files import Files

FILES = Files()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "file")


def test_offsets_have_kafkas_format(path):
    write_offsets(FILES, path, {("b-topic", 1): 7, ("a", 0): 5})
    with open(path) as file:
        assert file.read() == "0\n2\na 0 5\nb-topic 1 7\n"
    assert read_offsets(FILES, path) == {("b-topic", 1): 7, ("a", 0): 5}


def test_a_missing_checkpoint_is_empty(path):
    assert read_offsets(FILES, path) == {}


@pytest.mark.parametrize("content", ["", "0\n", "1\n0\n", "0\n2\na 0 5\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "\xff"])
def test_a_damaged_checkpoint_is_told_apart_from_an_empty_one(path, content):
    with open(path, "w", encoding="latin1") as file:
        file.write(content)
    with pytest.raises(CorruptFile):
        read_offsets(FILES, path)


def test_topic_ids_are_written_as_kafka_writes_them(path):
    topic_id = bytes(range(16))
    write_partition_metadata(FILES, path, topic_id)
    with open(path) as file:
        assert file.read() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert read_partition_metadata(FILES, path) == topic_id


@pytest.mark.parametrize("content", ["", "version: 0\n", "version: 0\ntopic_id: ?\n", "\0\0\0\0"])
def test_damaged_partition_metadata_counts_as_absent(path, content):
    with open(path, "w") as file:
        file.write(content)
    assert read_partition_metadata(FILES, path) is None


def test_topic_ids_survive_a_round_trip():
    assert topic_id_bytes(topic_id_text(b"\xff" * 16)) == b"\xff" * 16


def test_properties_survive_a_round_trip_and_comments_are_skipped(path):
    write_properties(FILES, path, {"cluster.id": "abc=", "node.id": "1"})
    with open(path, "a") as file:
        file.write("# a comment\n\n")
    assert read_properties(FILES, path) == {"cluster.id": "abc=", "node.id": "1"}
