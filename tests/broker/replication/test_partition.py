"""Partitions of a running node: durability before the acknowledgement, settings that take hold, a disk in trouble."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidemark.protocol.records import Record, build_batch, check_batch, iter_batches, iter_records
from tidemark.storage.files import Files

ALL = -1


def records_of(partition: Any) -> list[Record]:
    return [record for _, batch in iter_batches(partition.records) for record in iter_records(batch)]


async def set_config(client: Any, kind: int, name: str, **values: str) -> None:
    configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.call(request, IncrementalAlterConfigsResponse, 1)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


class Syncs:
    """Counts the syncs of segment files, and can hold them up or make them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: OSError | None = None
        self.gate = threading.Event()
        self.gate.set()

        def fdatasync(fd: int) -> None:
            self.count += 1
            assert self.gate.wait(10)
            if self.error is not None:
                raise self.error
            os.fdatasync(fd)

        monkeypatch.setattr(Files, "fdatasync", staticmethod(fdatasync))


async def test_one_sync_serves_many_acknowledgements(
    start_node: Any, connect: Any, requests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    clients = [await connect(node) for _ in range(20)]
    await clients[0].create("t", flush_messages="1")
    syncs = Syncs(monkeypatch)
    for _ in range(10):
        await asyncio.gather(*(client.produce("t", b"x") for client in clients))
    partition = node._replicas.table.leader_of("t", 0)
    assert partition.log.recovery_point == partition.log.end_offset == 200
    assert 10 <= syncs.count < 100, "200 acknowledged appends shared the syncs"


@pytest.mark.parametrize("acks", [1, ALL])
async def test_no_acknowledgement_and_no_reader_before_the_sync(
    start_node: Any, connect: Any, requests: Any, acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    client, reader = await connect(node), await connect(node)
    await client.create("t", flush_messages="1")
    partition = node._replicas.table.leader_of("t", 0)
    syncs = Syncs(monkeypatch)
    syncs.gate.clear()
    pending = asyncio.create_task(client.produce("t", b"x", acks=acks))
    while partition.log.end_offset == 0:
        await asyncio.sleep(0)
    assert (await reader.fetch("t", 0)).high_watermark == 0
    assert not pending.done()
    syncs.gate.set()
    assert (await asyncio.wait_for(pending, 10)).base_offset == 0
    assert [record.value for record in records_of(await reader.fetch("t", 0))] == [b"x"]


async def test_a_failed_sync_acknowledges_nothing_and_takes_the_partition_offline(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t", flush_messages="1")
    syncs = Syncs(monkeypatch)
    syncs.error = OSError(5, "Input/output error")
    assert (await client.produce("t", b"lost")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    syncs.error = None
    assert (await client.produce("t", b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await client.create("other")
    assert (await client.produce("other", b"fine")).error_code == 0


async def test_a_full_disk_refuses_and_recovers(start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    assert (await client.produce("t", b"before")).base_offset == 0
    segment = node._replicas.table.leader_of("t", 0).log.segments.active

    def full(fd: int, data: Any) -> int:
        os.write(fd, bytes(data)[:20])  # part of it still fits
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment, "_write", full)
    assert (await client.produce("t", b"does not fit")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert (await client.produce("t", b"after")).base_offset == 1
    assert [record.value for record in records_of(await client.fetch("t", 0))] == [b"before", b"after"]


async def test_log_append_time_is_the_brokers(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    await client.create("t", message_timestamp_type="LogAppendTime")
    result = await client.produce("t", batch=build_batch([Record(timestamp=5, value=b"x")]))
    assert result.log_append_time_ms > 1_600_000_000_000
    [record] = records_of(await client.fetch("t", 0))
    assert record.timestamp == result.log_append_time_ms


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)])
async def test_a_topics_own_codec_recompresses(start_node: Any, connect: Any, name: str, codec: int) -> None:
    client = await connect(await start_node())
    await client.create("t", compression_type=name)
    for offset, sent in enumerate((0, 1, 4)):
        batch = build_batch([Record(key=b"k", value=b"tide" * 100, headers=[("h", b"1")])], compression=sent)
        assert (await client.produce("t", batch=batch)).base_offset == offset
    fetched = await client.fetch("t", 0)
    batches = [batch for _, batch in iter_batches(fetched.records)]
    assert [check_batch(batch).compression for batch in batches] == [codec] * 3
    assert [(r.key, r.value, list(r.headers)) for r in records_of(fetched)] == [
        (b"k", b"tide" * 100, [("h", b"1")])
    ] * 3


async def test_a_changed_setting_takes_hold_at_once(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    assert (await client.produce("t", bytes(5000))).error_code == 0
    await set_config(client, 2, "t", max_message_bytes="1000")
    assert (await client.produce("t", bytes(5000))).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_the_brokers_dynamic_default_reaches_topics_without_their_own(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    await client.create("own", max_message_bytes="9000")
    await set_config(client, 4, "", message_max_bytes="1000")
    assert (await client.produce("t", bytes(5000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await client.produce("own", bytes(5000))).error_code == 0
    await node.stop()
    client = await connect(await start_node())
    assert (await client.produce("t", bytes(5000))).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_more_in_sync_replicas_than_there_are_replicas_cannot_be_asked_for(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    await client.create("t", min_insync_replicas="2")  # Kafka 4: the least of this and the replication factor counts
    assert (await client.produce("t", b"x")).error_code == 0
    assert (await client.produce("t", b"x", acks=1)).error_code == 0


async def test_deleted_records_stay_deleted_after_a_crash(start_node: Any, connect: Any, tmp_path: Path) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    for number in range(10):
        await client.produce("t", b"%d" % number)
    asked = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=7)])
    answer = await client.call(DeleteRecordsRequest(topics=[asked]), DeleteRecordsResponse, 2)
    assert answer.topics[0].partitions[0].low_watermark == 7
    crashed = tmp_path / "after-the-crash"
    shutil.copytree(tmp_path / "data", crashed)
    client = await connect(await start_node(crashed))
    assert (await client.fetch("t", 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in records_of(await client.fetch("t", 7))] == [b"7", b"8", b"9"]


async def test_retention_advances_the_start_and_consumers_see_it(start_node: Any, connect: Any) -> None:
    node = await start_node(log_retention_check_interval_ms=100, log_initial_task_delay_ms=100)
    client = await connect(node)
    await client.create("t", internal_segment_bytes="1000", retention_bytes="3000", file_delete_delay_ms="0")
    for number in range(50):
        await client.produce("t", b"%3d" % number + bytes(200))
    partition = node._replicas.table.leader_of("t", 0)
    async with asyncio.timeout(10):
        while partition.log.start_offset == 0:
            await asyncio.sleep(0.01)
    assert (await client.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    start = partition.log.start_offset
    assert (await client.fetch("t", start)).log_start_offset == start
    await node.stop()
    client = await connect(await start_node())
    assert (await client.fetch("t", start)).log_start_offset == start
    assert (await client.fetch("t", start - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_deleted_topic_ends_the_waits_for_it(start_node: Any, connect: Any, requests: Any) -> None:
    from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    node = await start_node()
    client, waiting = await connect(node), await connect(node)
    await client.create("t")
    fetch = asyncio.create_task(waiting.fetch("t", 0, wait_ms=60_000))
    while not node._replicas.table.leader_of("t", 0).watchers:
        await asyncio.sleep(0)
    answer = await client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), DeleteTopicsResponse, 6)
    assert answer.responses[0].error_code == 0
    assert (await asyncio.wait_for(fetch, 10)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await client.create("t")
    assert (await client.produce("t", b"new life")).base_offset == 0


class FailingWatcher:
    def appended(self, _partition: Any) -> None:
        raise RuntimeError("on purpose")

    high_watermark_advanced = ended = readable = appended


class CountingWatcher:
    def __init__(self) -> None:
        self.told: list[str] = []

    def appended(self, _partition: Any) -> None:
        self.told.append("appended")

    def high_watermark_advanced(self, _partition: Any) -> None:
        self.told.append("advanced")

    def ended(self, _partition: Any) -> None:
        self.told.append("ended")

    def readable(self, _partition: Any) -> None:
        self.told.append("readable")


async def test_a_followers_session_that_fails_leaves_none_asleep_and_no_producer_without_its_answer(
    start_node: Any, connect: Any
) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    partition = node._replicas.table.leader_of("t", 0)
    healthy = [CountingWatcher() for _ in range(8)]
    failing: Any = FailingWatcher()
    for watcher in (*healthy[:4], failing, *healthy[4:]):  # some of them come before the one that fails, some after
        partition.replica_watchers.add(watcher)
        partition.watchers.add(watcher)
    partition.commits_alone = False
    assert (await client.produce("t", b"x")).error_code == 0
    partition.delete_before(1)
    partition.resign(RuntimeError("over"))
    expected = {"appended": 2, "advanced": 1, "ended": 1, "readable": 2}
    assert [{each: watcher.told.count(each) for each in expected} for watcher in healthy] == [expected] * 8
