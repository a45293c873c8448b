"""The metadata log: every change is durable before it is shown, and replaying it gives the same image."""

from __future__ import annotations

import asyncio
import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import finished_apart
from tidemark.broker.metadata import store as store_module
from tidemark.broker.metadata.image import TOPIC_RESOURCE, Image, PartitionImage, partition_record
from tidemark.broker.metadata.records import (
    ConfigRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    encode_records,
)
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.raft import Configuration, Entry, Journal, Kind, Snapshot, driver

ALONE = PartitionImage(replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0)


def topic(number: int) -> list[Record]:
    topic_id = b"%16d" % number
    return [
        TopicRecord(name=f"t{number}", topic_id=topic_id),
        partition_record(topic_id, 0, ALONE),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=f"t{number}", name="retention.ms", value="9"),
    ]


async def opened(path: Path) -> MetadataStore:
    store = MetadataStore(path)
    await store.start()
    return store


async def test_changes_survive_a_restart(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert store.is_new
    await store.change(lambda _: [RegisterBrokerRecord(broker_id=0, broker_epoch=4, rack="r")])
    await store.change(lambda _: [*topic(1), *topic(2), ProducerIdsRecord(next_producer_id=1000)])
    before = store.image
    await store.close()
    again = await opened(tmp_path)
    assert not again.is_new
    assert again.image == before
    await again.close()


async def test_a_snapshot_gives_the_same_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened(tmp_path)
    for number in range(20):
        await store.change(lambda _, number=number: topic(number))  # type: ignore[misc]
    before = store.image
    await store.close()
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 100)
    for _ in range(2):
        store = await opened(tmp_path)
        assert store.image == before
        await store.close()
    assert (tmp_path / "snapshot").stat().st_size > 100


async def test_a_directory_from_before_there_was_a_quorum_opens(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([encode_records(topic(1)), encode_records(topic(2))], term=1)
    journal.save_snapshot(encode_records(Image().apply([*topic(1), *topic(2)]).records()))
    journal.append([encode_records(topic(3))], term=1)
    journal.close()
    store = await opened(tmp_path)
    assert sorted(store.image.topics) == ["t1", "t2", "t3"]
    await store.change(lambda _: topic(4))
    await store.close()
    again = await opened(tmp_path)
    assert sorted(again.image.topics) == ["t1", "t2", "t3", "t4"]
    await again.close()


async def test_decisions_are_made_one_after_the_other(tmp_path: Path) -> None:
    store = await opened(tmp_path)

    def create_once(image: Image) -> list[Record]:
        if "t1" in image.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, "there already")
        return topic(1)

    outcomes = await asyncio.gather(*(store.change(create_once) for _ in range(10)), return_exceptions=True)
    assert sum(isinstance(outcome, Refused) for outcome in outcomes) == 9
    await store.close()


async def test_watchers_see_every_change_in_order(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    seen: list[tuple[int, int]] = []
    store.watch(lambda old, new: seen.append((len(old.topics), len(new.topics))))
    await asyncio.gather(*(store.change(lambda _, n=n: topic(n)) for n in range(5)))  # type: ignore[misc]
    await store.change(lambda _: [])
    assert [before for before, _ in seen] == [0] + [after for _, after in seen[:-1]]
    assert seen[-1][1] == 5
    await store.close()


async def test_decisions_do_not_wait_for_the_disk_but_answers_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    saves: list[Any] = []
    save = store._storage.save
    monkeypatch.setattr(store._storage, "save", lambda effects: [saves.append(effects), save(effects)])  # type: ignore[func-returns-value]
    changes = [asyncio.create_task(store.change(lambda _, n=n: topic(n))) for n in range(50)]  # type: ignore[misc]
    nothing = asyncio.create_task(store.change(lambda image: [] if len(image.topics) == 50 else topic(99)))
    image = await nothing
    assert len(image.topics) == 50  # what it decided on was committed before it was answered
    await asyncio.gather(*changes)
    assert len(saves) < 10
    await store.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE], ids=["no room", "no descriptor"])
async def test_what_cannot_be_written_is_not_shown_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(driver, "SAVE_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(store_module, "CHANGE_SECONDS_MAX", 0.1)
    store = await opened(tmp_path)
    save = store._storage.save

    def full(_effects: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(store._storage, "save", full)
    with pytest.raises(Refused, match="in time"):
        await store.change(lambda _: topic(1))
    assert not store.image.topics
    monkeypatch.setattr(store._storage, "save", save)
    monkeypatch.setattr(store_module, "CHANGE_SECONDS_MAX", 10.0)
    image = await store.change(lambda _: topic(2))
    assert sorted(image.topics) == ["t1", "t2"]
    await store.close()


async def test_a_broken_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[BaseException] = []
    store = MetadataStore(tmp_path, failed=failures.append)
    await store.start()

    def broken(_effects: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store._storage, "save", broken)
    with pytest.raises(Refused) as refused:
        await store.change(lambda _: topic(1))
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
    await store.close()
    assert [str(failure) for failure in failures] == ["[Errno 5] Input/output error"]


async def test_a_large_change_that_another_node_decided_on_is_folded_before_it_is_applied(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    seen: list[Image] = []
    store.watch(lambda _old, new: seen.append(new))
    payload = encode_records([record for number in range(1000) for record in topic(number)])
    assert len(payload) > store_module.AT_ONCE_BYTES_MAX
    entries = [Entry(index=store.applied_index + 1, term=1, kind=Kind.DATA, payload=payload)]
    await store.prepare(entries)
    assert not seen
    store.apply(entries)
    assert [len(image.topics) for image in seen] == [1000]
    assert store.image is seen[0]
    await store.close()


async def test_a_large_snapshot_is_read_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short_slices = partial(finished_apart, slice_seconds=0.0005)  # however quick the machine is
    monkeypatch.setattr("tidemark.broker.metadata.store.finished_apart", short_slices)
    partitions = [record for number in range(3000) for record in topic(number)]
    snapshot = Snapshot(index=9, term=1, configuration=Configuration.of([0]), data=encode_records(partitions))
    store = await opened(tmp_path)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    others = asyncio.create_task(count_turns())
    await store.restore(snapshot)
    others.cancel()
    assert len(store.image.topics) == 3000
    assert turns >= 3, "other work had no turn while the snapshot was read"
    await store.close()
