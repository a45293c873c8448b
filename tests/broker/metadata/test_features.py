"""Features: what the cluster may write is what every broker can read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tidemark.broker.metadata.features import SUPPORTED, finalized, may_write_directory_ids
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import (
    FeatureRange,
    RegisterBrokerRecord,
    TopicRecord,
    UnknownRecord,
    decode_records,
    encode_records,
)
from tidemark.broker.metadata.store import MetadataStore

NEW = [FeatureRange(name=name, min_version=low, max_version=high) for name, (low, high) in SUPPORTED.items()]
OLD = [FeatureRange(name="transaction.version", min_version=0, max_version=2)]


def test_directory_ids_are_written_only_when_every_broker_can_read_them() -> None:
    mixed = Image().apply(
        [RegisterBrokerRecord(broker_id=1, features=NEW), RegisterBrokerRecord(broker_id=2, features=OLD)]
    )
    assert finalized(mixed)["tidemark.metadata.version"] == 1
    assert not may_write_directory_ids(mixed)
    upgraded = mixed.apply([RegisterBrokerRecord(broker_id=2, features=NEW)])
    assert finalized(upgraded)["tidemark.metadata.version"] == 2
    assert may_write_directory_ids(upgraded)


def test_kafkas_tools_find_the_features_they_know() -> None:
    levels = finalized(Image())
    assert levels["metadata.version"] == 25
    assert levels["transaction.version"] == 2
    assert levels["eligible.leader.replicas.version"] == 1
    assert all(low <= levels[name] <= high for name, (low, high) in SUPPORTED.items())


@pytest.mark.parametrize(("key", "version"), [(999, 0), (2, 7)])
def test_a_record_of_a_newer_version_is_refused_with_a_sentence_that_says_what_to_do(key: int, version: int) -> None:
    known = encode_records([TopicRecord(name="t", topic_id=bytes(16))])
    with pytest.raises(UnknownRecord, match="newer version"):
        list(decode_records(known + struct.pack(">HBI", key, version, 0)))


async def test_a_node_does_not_start_on_metadata_of_a_newer_version(tmp_path: Path) -> None:
    store = MetadataStore(tmp_path, node_id=1)
    await store.start()
    await store.driver.propose(encode_records([TopicRecord(name="t", topic_id=bytes(16))]))
    await store.close()
    again = MetadataStore(tmp_path, node_id=1)
    await again.start()
    assert "t" in again.image.topics
    await again.close()
