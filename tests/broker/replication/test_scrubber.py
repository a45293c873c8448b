"""What a disk has changed is found, whichever bit it is; it is mended, fetched anew, or not served any more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.metadata.image import TOPIC_RESOURCE
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import EndTransaction, Record, build_batch, build_end_transaction, read_header
from tidemark.storage import Files
from tidemark.storage.scrubbing import running
from tidemark.storage.scrubbing.running import ThreadScrubRunner

New = Callable[..., Any]
SETTINGS = {"log.scrub.bytes.per.second": "100000000", "log.scrub.interval.ms": "0"}
SMALL = {"internal.segment.bytes": "300", "index.interval.bytes": "90", "file.delete.delay.ms": "0"}


async def scrub(cluster: Any, node_id: int) -> None:
    """One pass over every log."""
    node = cluster.nodes[node_id]
    scrubber, config = node.scrubber, node.table.config
    scrubber._read_at.clear()
    await scrubber.scrub_all_due(lambda: config.with_values({"log.scrub.interval.ms": "1000000000"}))


async def fill(cluster: Any, leader: int) -> None:
    """Several segments with index entries, a transaction that is aborted, and two leader epochs."""
    for at in range(4):
        if at == 2:
            cluster.become(leader=leader)
        led = cluster.led(leader)
        batch = build_batch([Record(timestamp=1_700_000_000_000 + at, value=b"%d-%d" % (at, n)) for n in range(3)])
        last = led.append(memoryview(batch), 1_700_000_000_000 + at).last_offset
        if at in (1, 3):
            await transaction(led, commit=at == 3, sequence=at // 3)
        assert await cluster.acknowledged(leader, last) is None


async def transaction(led: Any, *, commit: bool, sequence: int) -> None:
    batch = build_batch(
        [Record(value=b"of a transaction")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    led.append_checked(batch, read_header(batch), 1)
    marker = EndTransaction(producer_id=7, producer_epoch=0, commit=commit, coordinator_epoch=1)
    data = build_end_transaction(marker, timestamp=1_700_000_000_000)
    led.append_checked(data, read_header(data), 1)


def directory_of(cluster: Any, node_id: int) -> Path:
    return Path(cluster.replica(node_id).log.directory)


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix != ".tmp")


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files_of(directory)}


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ (1 << (at * 5 + 3) % 8)]))


def places(directory: Path) -> list[tuple[str, int]]:
    """Every byte of every file, or (`make check`) every seventh."""
    every = [(path.name, at) for path in files_of(directory) for at in range(path.stat().st_size)]
    return every[:: 7 if "TIDEMARK_HISTORIES" in os.environ else 1]


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each of a thousand flipped bits would take long, and so would waiting for the disk."""
    monkeypatch.setattr(Files, "fdatasync", lambda *_: None)
    monkeypatch.setattr(Files, "sync_file", lambda *_: None)
    monkeypatch.setattr(Files, "sync_directory", lambda *_: None)
    monkeypatch.setattr("tidemark.broker.replication.scrubber.scrub_runner_for", ThreadScrubRunner)


async def new(new_cluster: New, nodes: int) -> Any:
    cluster = new_cluster(nodes=nodes, **SETTINGS)
    cluster.configure({(TOPIC_RESOURCE, "t"): SMALL})
    await fill(cluster, 1)
    for node_id in cluster.nodes:
        cluster.replica(node_id).log.flush()
    return cluster


async def test_a_sound_log_is_left_as_it_is(new_cluster: New, caplog: pytest.LogCaptureFixture) -> None:
    cluster = await new(new_cluster, 1)
    before = contents(directory_of(cluster, 1))
    assert {Path(name).suffix for name in before} >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    await scrub(cluster, 1)
    assert contents(directory_of(cluster, 1)) == before
    assert "anew" not in caplog.text


@pytest.mark.usefixtures("in_this_process")
async def test_on_a_single_node_every_flipped_bit_is_mended_or_the_partition_is_offline(new_cluster: New) -> None:
    cluster = await new(new_cluster, 1)
    directory = directory_of(cluster, 1)
    log = cluster.replica(1).log
    log.roll()  # its last segment would be rolled with the first bit, and the files be others
    values = cluster.values(1)
    aborted = log.aborted_transactions(from_offset=0, up_to=log.end_offset)
    sound = contents(directory)
    offline = 0
    flipped = places(directory)
    for name, at in flipped:
        path = directory / name
        flip(path, at)
        await scrub(cluster, 1)
        hosted = cluster.nodes[1].table.topics["t"]
        if name.endswith(".log"):
            assert str(path) in hosted.offline[0], (name, at)
            assert "byte" in hosted.offline[0]
            assert hosted.why_not_led(0) == ErrorCode.KAFKA_STORAGE_ERROR
            path.write_bytes(sound[name])
            await back_online(cluster)
            offline += 1
        else:
            assert 0 not in hosted.offline, (name, at)
            if not path.exists():  # a snapshot of producers: the log tells as much
                assert name.endswith(".snapshot")
                path.write_bytes(sound[name])
                cluster.replica(1).log.snapshots._offsets = [int(each[:20]) for each in sorted(sound) if "snap" in each]
            assert path.read_bytes() == sound[name], (name, at)
    assert offline == sum(name.endswith(".log") for name, _ in flipped) > 0
    log = cluster.replica(1).log
    assert cluster.values(1) == values
    assert log.aborted_transactions(from_offset=0, up_to=log.end_offset) == aborted


async def back_online(cluster: Any) -> None:
    """As after a restart: the damage is looked at again, and is not there any more."""
    node = cluster.nodes[1]
    hosted = node.table.topics["t"]
    cluster.directories[1].logs.pop(("t", 0)).segments.close()
    cluster.directories[1].was_clean = True
    node.roles.assign(hosted, 0)
    assert 0 not in hosted.offline
    assert not (directory_of(cluster, 1) / "tidemark.damage").exists()


async def test_a_damaged_log_stays_offline_after_a_restart_until_it_is_whole(new_cluster: New) -> None:
    cluster = await new(new_cluster, 1)
    directory = directory_of(cluster, 1)
    path = sorted(directory.glob("*.log"))[0]
    flip(path, 100)
    await scrub(cluster, 1)
    for clean in (True, False):
        await cluster.stop(1, clean=clean)
        cluster.start(1)
        assert str(path) in cluster.nodes[1].table.topics["t"].offline[0]
    await cluster.stop(1)
    flip(path, 100)
    cluster.start(1)
    assert cluster.nodes[1].table.topics["t"].offline == {}
    assert len(cluster.values(1)) > 0


@pytest.mark.parametrize("damaged", [1, 2])
async def test_with_replicas_a_damaged_log_is_fetched_anew(new_cluster: New, damaged: int) -> None:
    cluster = await new(new_cluster, 3)
    await cluster.until(lambda: cluster.replica(2).high_watermark == cluster.replica(1).high_watermark)
    values = cluster.values(3)
    path = sorted(directory_of(cluster, damaged).glob("*.log"))[1]
    flip(path, 70)
    await scrub(cluster, damaged)
    if damaged == 2:
        assert cluster.nodes[2].table.topics["t"].offline
        cluster.become(isr=(1, 3))  # as the leader does with one that fetches no more
    else:
        await cluster.until(lambda: cluster.partition.leader != damaged)
    node = cluster.nodes[damaged]
    await cluster.until(lambda: [node.roles.retries.retry(), node.table.topics["t"].offline == {}][1])
    await cluster.until(lambda: cluster.values(damaged) == values)
    assert not (directory_of(cluster, damaged) / "tidemark.damage").exists()
    leader = 1 if damaged == 2 else cluster.partition.leader
    assert leader != damaged
    assert await cluster.acknowledged(leader, cluster.append(leader, b"and on")) is None
    await scrub(cluster, damaged)
    assert cluster.nodes[damaged].table.topics["t"].offline == {}


@pytest.mark.usefixtures("in_this_process")
async def test_with_replicas_every_flipped_bit_is_mended_or_fetched_anew(new_cluster: New) -> None:
    """Every byte of every file, of a leader. If it was a batch's, another leads then, and gives the first its log."""
    cluster = await few_bytes(new_cluster)
    values, sound = cluster.values(1), contents(directory_of(cluster, 1))
    assert {Path(name).suffix for name in sound} >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert len([name for name in sound if name.endswith(".log")]) == 2
    for name, at in places(directory_of(cluster, 1)):
        leader = cluster.partition.leader
        path = directory_of(cluster, leader) / name
        flip(path, at)
        await scrub(cluster, leader)
        if name.endswith(".log"):
            await cluster.until(lambda leader=leader: cluster.partition.leader != leader)
            cluster.nodes[leader].roles.retries.retry()
            await cluster.until(lambda leader=leader: cluster.values(leader) == values)
            await cluster.until(lambda: set(cluster.partition.isr) == {1, 2, 3})
        elif name.endswith(".snapshot"):
            assert not path.exists(), (name, at)
            path.write_bytes(sound[name])
            cluster.replica(leader).log.snapshots._offsets = [int(name[:20])]
        elif name == "leader-epoch-checkpoint":  # may tell of the leader's own epoch now, which has no batch yet
            assert set(path.read_bytes().split(b"\n")[2:]) >= set(sound[name].split(b"\n")[2:]), at
            path.write_bytes(sound[name])
        assert (directory_of(cluster, leader) / name).read_bytes() == sound[name], (name, at)
        assert cluster.partition.leader != leader or not name.endswith(".log")


async def few_bytes(new_cluster: New) -> Any:
    """Three replicas of a log of two segments, with an aborted transaction and two epochs, as small as can be."""
    cluster = new_cluster(nodes=3, **SETTINGS)
    small = {"internal.segment.bytes": "250", "index.interval.bytes": "60", "file.delete.delay.ms": "0"}
    cluster.configure({(TOPIC_RESOURCE, "t"): small})
    cluster.append(1, b"a")
    await transaction(cluster.led(1), commit=False, sequence=0)
    cluster.become(leader=1)
    assert await cluster.acknowledged(1, cluster.append(1, b"b")) is None
    await cluster.until(lambda: len({cluster.replica(each).high_watermark for each in (1, 2, 3)}) == 1)
    for node_id in cluster.nodes:
        cluster.replica(node_id).log.flush()
    return cluster


async def test_the_segment_that_is_written_to_is_mended_while_appends_go_on(new_cluster: New) -> None:
    cluster = new_cluster(nodes=1, **SETTINGS)
    cluster.configure({(TOPIC_RESOURCE, "t"): {"index.interval.bytes": "150"}})
    for at in range(30):
        await cluster.acknowledged(1, cluster.append(1, b"%d" % at + bytes(40)))
    log = cluster.replica(1).log
    log.segments.active.indexes.save()
    path = Path(log.segments.active.path(".index"))
    sound = path.read_bytes()
    flip(path, 9)
    scrubbing = asyncio.ensure_future(scrub(cluster, 1))
    while not scrubbing.done():
        cluster.append(1, b"meanwhile")
        await asyncio.sleep(0.001)
    await scrubbing
    assert path.read_bytes().startswith(sound)
    assert cluster.values(1)[:30] == [b"%d" % at + bytes(40) for at in range(30)]


async def test_the_segment_that_a_thread_writes_to_is_mended_when_it_is_done(new_cluster: New) -> None:
    """The disk may hang: the event loop does not wait for it."""
    cluster = new_cluster(nodes=1, **SETTINGS)
    cluster.configure({(TOPIC_RESOURCE, "t"): {"index.interval.bytes": "150"}})
    for at in range(30):
        await cluster.acknowledged(1, cluster.append(1, b"%d" % at + bytes(40)))
    partition = cluster.led(1)
    partition.log.segments.active.indexes.save()
    path = Path(partition.log.segments.active.path(".index"))
    sound = path.read_bytes()
    flip(path, 9)
    partition.writers.at_once_bytes_max = 0  # as on a slow disk
    batch = build_batch([Record(value=b"late")])
    pending = partition.begin_append(memoryview(batch), read_header(batch), 1)
    scrubbing = asyncio.ensure_future(scrub(cluster, 1))
    await cluster.until(lambda: partition._when_written)
    assert path.read_bytes() != sound
    assert partition.log.is_appending
    pending()
    partition.finish_append(pending)
    await scrubbing
    assert path.read_bytes().startswith(sound)
    assert cluster.values(1)[-1] == b"late"


async def test_nothing_is_read_while_scrubbing_is_off(new_cluster: New, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = new_cluster(nodes=1)
    cluster.append(1, b"a")
    monkeypatch.setattr("subprocess.Popen", None)
    node = cluster.nodes[1]
    await node.scrubber.scrub_all_due(lambda: node.table.config)
    assert node.table.config.log_scrub_bytes_per_second == 0


@pytest.mark.usefixtures("in_this_process")
async def test_which_logs_are_due_is_found_out_once_for_all_of_them(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each held the event loop for ten milliseconds a log, with ten thousand of them."""
    node = await start_node()
    await (await connect(node)).create("many", 20)
    replicas, passes = node._replicas, 0
    everything = ReplicaTable.__iter__

    def counted(table: ReplicaTable) -> Iterator[Replica]:
        nonlocal passes
        passes += 1
        return everything(table)

    monkeypatch.setattr(ReplicaTable, "__iter__", counted)
    config = replicas.table.config.with_values({"log.scrub.bytes.per.second": "100000000"})
    await replicas.scrubber.scrub_all_due(lambda: config)
    assert replicas.scrubber.read_logs == 20
    assert passes <= 3  # others go through it, too


def test_files_of_this_process_only_are_read_within_it() -> None:
    assert isinstance(running.scrub_runner_for(Files()), ThreadScrubRunner)


async def test_a_log_whose_topic_becomes_a_compacted_one_while_it_is_read_stays_online(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(nodes=1, **SETTINGS)
    cluster.configure({(TOPIC_RESOURCE, "t"): SMALL})
    for at in range(12):
        batch = build_batch([Record(timestamp=1_700_000_000_000, key=b"%d" % (at % 2), value=bytes(100))])
        cluster.led(1).append(memoryview(batch), 1_700_000_000_000)
    node = cluster.nodes[1]
    log = cluster.replica(1).log
    log.flush()
    size = log.size_bytes
    findings = node.scrubber.findings

    async def findings_later(*args: Any) -> Any:
        found = await findings(*args)
        if not log.config.compact:
            cluster.configure({(TOPIC_RESOURCE, "t"): {**SMALL, "cleanup.policy": "compact"}})
            await node.cleaner.clean_all_due(node.table.config)
        return found

    monkeypatch.setattr(node.scrubber, "findings", findings_later)
    await scrub(cluster, 1)
    assert log.size_bytes < size / 2
    assert not log.is_offline
