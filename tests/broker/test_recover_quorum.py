"""One survivor of three: what its metadata says before it starts again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidemark.broker.config import BrokerConfig
from tidemark.broker.metadata.brokers import register, unfence
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import (
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    decode_records,
    encode_records,
)
from tidemark.broker.node import METADATA_DIRECTORY
from tidemark.broker.recover_quorum import main
from tidemark.raft import Configuration, Effects, Entry, FileStorage, HardState, Kind, Member

TOPIC_ID = bytes(16)


def everything_is_well() -> list[Record]:
    """Three live brokers, and a partition on all of them, led by the second."""
    brokers = [RegisterBrokerRecord(broker_id=each, broker_epoch=each, endpoints=[]) for each in (1, 2, 3)]
    partition = PartitionRecord(
        topic_id=TOPIC_ID,
        partition_id=0,
        replicas=[2, 1, 3],
        isr=[1, 2, 3],
        leader=2,
        leader_epoch=0,
        partition_epoch=0,
    )
    return [*brokers, TopicRecord(name="kept", topic_id=TOPIC_ID), partition]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / METADATA_DIRECTORY).mkdir()
    storage = FileStorage(tmp_path / METADATA_DIRECTORY)
    members = Configuration(tuple(Member(node_id=each) for each in (1, 2, 3)))
    entries = (Entry(1, 1, members.encode(), Kind.CONFIGURATION), Entry(1, 2, encode_records(everything_is_well())))
    storage.save(Effects(hard_state=HardState(term=1), entries=entries))
    storage.close()
    return tmp_path


def recovered(data: Path, *flags: str) -> Image:
    assert main(["--set", f"log.dirs={data}", "--set", "node.id=1", *flags]) == 0
    storage = FileStorage(data / METADATA_DIRECTORY)
    image = Image()
    for entry in storage.load().entries:
        if entry.kind is Kind.DATA:
            image = image.apply(decode_records(entry.payload))
    storage.close()
    return image


def test_a_look_changes_nothing(data: Path) -> None:
    (partition,) = recovered(data).topics["kept"].partitions
    assert partition.isr == (1, 2, 3)


def test_the_lost_voters_are_fenced_and_out_of_sync(data: Path) -> None:
    image = recovered(data, "--yes")
    assert [each for each, broker in image.brokers.items() if broker.fenced] == [2, 3]
    (partition,) = image.topics["kept"].partitions
    assert (partition.leader, partition.isr) == (1, (1,))


def test_the_survivor_leads_again_after_it_registers(data: Path) -> None:
    """It is out of every in-sync set while it registers; nobody who is lost may then be waited for."""
    image, config = recovered(data, "--yes"), BrokerConfig()
    again = replace(image.brokers[1], broker_epoch=100, incarnation_id=b"a new incarnation")
    image = image.apply(register(image, again, config, stopped_cleanly=True, has_session=False))
    image = image.apply(unfence(image, 1, config))
    (partition,) = image.topics["kept"].partitions
    assert (partition.leader, partition.isr) == (1, (1,))
