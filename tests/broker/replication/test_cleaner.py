"""Each replica of a compacted log is cleaned for itself: they may differ in what is gone, never in what it means."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark import storage
from tidemark.broker.metadata.image import TOPIC_RESOURCE
from tidemark.broker.replication import cleaner
from tidemark.broker.replication.followed import Followed
from tidemark.protocol.records import Record, build_batch, iter_batches, iter_records
from tidemark.storage import CleaningFailed, CleaningStarved, Files
from tidemark.storage.cleaning import running

New = Callable[..., Any]

KEYS = 40
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "40000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}


class Written:
    """What was acknowledged, by key and by offset."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.last: dict[bytes, tuple[int, bytes]] = {}
        self.all: dict[int, tuple[bytes, bytes]] = {}

    async def rounds(self, leader: int, count: int) -> None:
        for _ in range(count):
            await self.round(leader)

    async def round(self, leader: int) -> None:
        start = self.cluster.replica(leader).log.end_offset
        pairs = [(b"key%d" % at, b"%d-" % (start + at) + bytes(100)) for at in range(KEYS)]
        batch = build_batch([Record(timestamp=1, key=key, value=value) for key, value in pairs])
        last = self.cluster.led(leader).append(memoryview(batch), 1).last_offset
        assert await self.cluster.acknowledged(leader, last) is None
        for offset, (key, value) in enumerate(pairs, start):
            self.all[offset] = key, value
            self.last[key] = offset, value

    def check(self, node_id: int) -> None:
        found = records(self.cluster, node_id)
        assert found.items() <= self.all.items()
        assert {key: (offset, value) for offset, (key, value) in sorted(found.items())} == self.last


def records(cluster: Any, node_id: int) -> dict[int, tuple[bytes | None, bytes | None]]:
    """By offset, as a reader from zero finds them."""
    log = cluster.replica(node_id).log
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = log.start_offset
    while slices := log.read(offset=offset, limit_bytes=1 << 20):
        for each in slices:
            for header, batch in iter_batches(os.pread(each.file.fileno(), each.length, each.position)):
                found.update({record.offset: (record.key, record.value) for record in iter_records(batch)})
                offset = header.next_offset
    return found


async def has_all(cluster: Any, leader: int, *others: int) -> None:
    end = cluster.replica(leader).log.end_offset
    await cluster.until(lambda: all(cluster.replica(each).high_watermark == end for each in (leader, *others)))


async def clean(cluster: Any, node_id: int) -> None:
    node = cluster.nodes[node_id]
    cluster.replica(node_id).log.flush()  # what may be gone after a power cut is left alone
    await node.cleaner.clean_all_due(node.table.config)
    assert node.cleaner.uncleanable == {}


@pytest.fixture
async def cluster(new_cluster: New) -> Any:
    made = new_cluster()
    made.configure({(TOPIC_RESOURCE, "t"): COMPACTED})
    return made


async def test_a_follower_is_cleaned_and_leads_with_nothing_lost(cluster: Any) -> None:
    written = Written(cluster)
    await written.rounds(1, 40)
    await has_all(cluster, 1, 2, 3)
    await clean(cluster, 2)
    assert len(records(cluster, 2)) < len(written.all) / 2
    assert len(records(cluster, 1)) == len(written.all)

    cluster.become(leader=2, isr=(2, 3))
    await cluster.stop(1, clean=False)
    await written.rounds(2, 20)
    await has_all(cluster, 2, 3)
    written.check(2)
    written.check(3)

    await clean(cluster, 2)
    cluster.start(1)  # is behind, and follows across what is gone
    await has_all(cluster, 2, 1, 3)
    cluster.become(leader=1, isr=(1, 2, 3))
    await written.rounds(1, 20)
    await has_all(cluster, 1, 2, 3)
    await asyncio.gather(*(clean(cluster, node_id) for node_id in (1, 2, 3)))
    for node_id in (1, 2, 3):
        assert len(records(cluster, node_id)) < len(written.all) / 4
        written.check(node_id)


async def test_leadership_moves_while_the_log_is_cleaned(cluster: Any) -> None:
    written = Written(cluster)
    for leader in (1, 2, 3, 1):
        cluster.become(leader=leader)
        await written.rounds(leader, 20)
        cleanings = asyncio.gather(*(clean(cluster, node_id) for node_id in (1, 2, 3)))
        cluster.become(leader=leader % 3 + 1)
        await written.rounds(leader % 3 + 1, 5)
        await cleanings
    await has_all(cluster, 2, 1, 3)
    await asyncio.gather(*(clean(cluster, node_id) for node_id in (1, 2, 3)))
    for node_id in (1, 2, 3):
        assert len(records(cluster, node_id)) < len(written.all) / 2
        written.check(node_id)


async def test_files_of_this_process_only_are_cleaned_within_it(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a simulated node are."""
    monkeypatch.setattr(running, "REAL_FILES", Files())
    monkeypatch.setattr("subprocess.Popen", None)
    written = Written(cluster)
    await written.rounds(1, 40)
    await clean(cluster, 1)
    assert len(records(cluster, 1)) < len(written.all) / 2
    written.check(1)


async def test_changed_settings_count_from_the_next_cleaning_on(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at a time share the memory and the rate; with none, nothing is cleaned."""
    told: list[dict[str, Any]] = []

    def job_for(*args: Any, **options: Any) -> Any:
        told.append(options)
        return storage.job_for(*args, **options)

    monkeypatch.setattr(cleaner, "job_for", job_for)
    written = Written(cluster)
    await written.rounds(1, 40)
    cluster.replica(1).log.flush()
    node = cluster.nodes[1]
    config = node.table.config
    await node.cleaner.clean_all_due(config.with_values({"log.cleaner.threads": "0"}))
    assert told == []
    changed = {
        "log.cleaner.threads": "2",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "log.cleaner.io.max.bytes.per.second": "100000000",
        "log.cleaner.io.buffer.load.factor": "0.5",
    }
    await node.cleaner.clean_all_due(config.with_values(changed))
    assert told[0]["map_bytes"] == 2 << 20
    assert told[0]["bytes_per_second"] == 50_000_000
    assert told[0]["map_load_factor"] == 0.5
    written.check(1)


async def test_a_log_that_is_cut_by_its_next_role_is_not_touched(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader becomes a follower while its log is cleaned, and the follower, which is another object, cuts the log."""
    monkeypatch.setattr(running, "REAL_FILES", Files())  # cleaned on a thread, one segment when the next is asked for
    written = Written(cluster)
    await written.rounds(1, 40)
    swapped: list[object] = []

    def swap(*args: Any) -> None:
        storage.swap(*args)
        swapped.append(args)
        cluster.become(leader=2)
        monkeypatch.setattr(Followed, "is_truncating", True)

    monkeypatch.setattr(cleaner, "swap", swap)
    await clean(cluster, 1)
    assert len(swapped) == 1


async def test_a_cleaning_that_fails_half_way_has_said_that_offsets_may_be_missing(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the gaps that it left would be taken for damage, once the topic is not compacted any more."""
    written = Written(cluster)
    await written.rounds(1, 40)

    def swap(*args: Any) -> None:
        storage.swap(*args)
        raise CleaningFailed("a full disk", is_passing=True)

    monkeypatch.setattr(cleaner, "swap", swap)
    await clean(cluster, 1)
    (directory,) = cluster.nodes[1].table.directories
    assert directory.cleaned_up_to == {("t", 0): 0}
    assert (Path(directory.path) / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"


async def test_swaps_last_before_it_is_noted_that_the_log_is_clean(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power cut could leave the old segments, and a note that says that every key is in them once: a deleted key
    would come back, when its tombstone goes."""
    written = Written(cluster)
    await written.rounds(1, 40)
    log, (directory,) = cluster.replica(1).log, cluster.nodes[1].table.directories
    done: list[str] = []

    def noted(call: Callable[..., None]) -> Callable[..., None]:
        def noting(self: Any, path: str, *args: Any) -> None:
            done.append(path)
            call(self, path, *args)

        return noting

    monkeypatch.setattr(Files, "sync_directory", noted(Files.sync_directory))
    monkeypatch.setattr(Files, "rename", noted(Files.rename))
    await clean(cluster, 1)
    swapped = max(at for at, path in enumerate(done) if path.endswith(".swap"))
    synced = done.index(log.directory, swapped)
    checkpoint = os.path.join(directory.path, "cleaner-offset-checkpoint.tmp")
    assert synced < max(at for at, path in enumerate(done) if path == checkpoint)
    assert directory.cleaned_up_to["t", 0] > 0


async def test_killed_in_the_middle_a_topic_that_is_compacted_no_more_loses_nothing(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gaps that a cleaning left were taken for what a power cut leaves, with the recovery point of a minute ago:
    everything after the first of them was dropped."""
    written = Written(cluster)
    await written.rounds(1, 40)

    def swap(*args: Any) -> None:
        storage.swap(*args)
        raise CleaningFailed("killed here", is_passing=True)

    monkeypatch.setattr(cleaner, "swap", swap)
    await clean(cluster, 1)
    assert len(records(cluster, 1)) < len(written.all)
    await cluster.stop(1, clean=False)
    cluster.configure({(TOPIC_RESOURCE, "t"): {**COMPACTED, "cleanup.policy": "delete"}})
    cluster.start(1)
    written.check(1)


async def test_after_a_cleaning_that_was_not_let_run_the_next_has_a_share_of_its_own(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    def job_for(*args: Any, **options: Any) -> Any:
        told.append(options["is_patient"])
        return storage.job_for(*args, **options)

    def swap(*_: Any) -> None:
        if told == [True]:
            raise CleaningStarved("a busy machine")

    monkeypatch.setattr(cleaner, "PATIENT_BYTES_MIN", 0)
    monkeypatch.setattr(cleaner, "job_for", job_for)
    monkeypatch.setattr(cleaner, "swap", swap)
    await Written(cluster).rounds(1, 40)
    await clean(cluster, 1)
    assert told == [True, False], "at once"


async def test_two_that_look_for_the_dirtiest_log_at_once_do_not_clean_the_same_one(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search lets others have their turn in between, as it does with thousands of logs."""

    async def pausing(replicas: Any, work: Callable[[Any], None]) -> None:
        for replica in replicas:
            work([replica])
            await asyncio.sleep(0)

    monkeypatch.setattr(cleaner, "in_chunks", pausing)
    written = Written(cluster)
    await written.rounds(1, 40)
    await has_all(cluster, 1, 2, 3)
    node, under_way = cluster.nodes[1], list[Any]()
    original = node.cleaner._clean

    async def watched(due: Any, *args: Any, **kwargs: Any) -> bool:
        assert due.replica.index not in under_way
        under_way.append(due.replica.index)
        try:
            return bool(await original(due, *args, **kwargs))
        finally:
            under_way.remove(due.replica.index)

    monkeypatch.setattr(node.cleaner, "_clean", watched)
    cluster.replica(1).log.flush()
    await node.cleaner.clean_all_due(node.table.config.with_values({"log.cleaner.threads": "3"}))
    assert node.cleaner.cleaned_logs == 1
    written.check(1)
