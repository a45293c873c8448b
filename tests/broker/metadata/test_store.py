"""The metadata log: every change is durable before it is shown, and replaying it gives the same image."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.errors import Refused
from broker.metadata import store as store_module
from broker.metadata.image import TOPIC_RESOURCE, Image, PartitionImage, partition_record
from broker.metadata.records import ConfigRecord, ProducerIdsRecord, Record, RegisterBrokerRecord, TopicRecord
from broker.metadata.store import MetadataStore
from protocol.errors import ErrorCode

ALONE = PartitionImage(replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0)


def topic(number: int) -> list[Record]:
    topic_id = b"%16d" % number
    return [
        TopicRecord(name=f"t{number}", topic_id=topic_id),
        partition_record(topic_id, 0, ALONE),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=f"t{number}", name="retention.ms", value="9"),
    ]


async def test_changes_survive_a_restart(tmp_path: Path) -> None:
    store = MetadataStore(tmp_path)
    assert store.is_new
    store.commit_now([RegisterBrokerRecord(broker_id=0, broker_epoch=4, rack="r")])
    await store.change(lambda _: [*topic(1), *topic(2), ProducerIdsRecord(next_producer_id=1000)])
    before = store.image
    store.close()
    again = MetadataStore(tmp_path)
    assert not again.is_new
    assert again.image == before
    again.close()


async def test_a_snapshot_gives_the_same_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MetadataStore(tmp_path)
    for number in range(20):
        await store.change(lambda _, number=number: topic(number))  # type: ignore[misc]
    before = store.image
    store.close()
    monkeypatch.setattr(store_module, "SNAPSHOT_BYTES_MIN", 100)
    for _ in range(2):
        store = MetadataStore(tmp_path)
        assert store.image == before
        store.close()
    assert (tmp_path / "journal").stat().st_size == 0


async def test_decisions_are_made_one_after_the_other(tmp_path: Path) -> None:
    store = MetadataStore(tmp_path)

    def create_once(image: Image) -> list[Record]:
        if "t1" in image.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, "there already")
        return topic(1)

    outcomes = await asyncio.gather(*(store.change(create_once) for _ in range(10)), return_exceptions=True)
    assert sum(isinstance(outcome, Refused) for outcome in outcomes) == 9
    store.close()


async def test_watchers_see_every_change_in_order(tmp_path: Path) -> None:
    store = MetadataStore(tmp_path)
    seen: list[tuple[int, int]] = []
    store.watch(lambda old, new: seen.append((len(old.topics), len(new.topics))))
    await asyncio.gather(*(store.change(lambda _, n=n: topic(n)) for n in range(5)))  # type: ignore[misc]
    await store.change(lambda _: [])
    assert seen == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    store.close()


async def test_what_cannot_be_written_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MetadataStore(tmp_path)

    def full(_payload: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        await store.change(lambda _: topic(1))
    assert not store.image.topics
    store.close()
