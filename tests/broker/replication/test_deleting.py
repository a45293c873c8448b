"""DeleteRecords on a cluster: it is answered when the records are gone everywhere, or the time is up."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.broker.replication.conftest import Cluster
from tidemark.broker.core.deferred import awaited
from tidemark.broker.core.registry import Call
from tidemark.broker.core.sliced_work import finished
from tidemark.broker.handlers.delete_records import delete_records
from tidemark.broker.metadata.image import TOPIC_RESOURCE
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidemark.storage import Files

NewCluster = Callable[..., Cluster]


async def delete(cluster: Cluster, offset: int, *, timeout_ms: int = 10_000) -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=timeout_ms)
    node = cluster.nodes[1]
    deleting = delete_records(request, Call(None, 2, None), replicas=node.table, housekeeping=node.housekeeping)
    response = await awaited(await finished(deleting))
    return response.topics[0].partitions[0]


async def filled(cluster: Cluster) -> None:
    for number in range(10):
        cluster.append(1, b"%d" % number)
    assert await cluster.acknowledged(1, 9) is None


async def test_the_answer_comes_when_every_replica_has_deleted(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    await filled(cluster)
    result = await delete(cluster, 6)
    assert (result.error_code, result.low_watermark) == (0, 6)
    assert [cluster.replica(node).log.start_offset for node in (1, 2, 3)] == [6, 6, 6]


async def test_on_no_replica_the_event_loop_waits_for_a_new_name_of_a_file(
    new_cluster: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster()
    cluster.configure({(TOPIC_RESOURCE, "t"): {"internal.segment.bytes": "200"}})
    await filled(cluster)
    renamed: list[str] = []
    rename = Files.rename

    def note(files: Files, source: str, target: str) -> None:
        if source.endswith(".log"):
            renamed.append(source)
        rename(files, source, target)

    monkeypatch.setattr(Files, "rename", note)
    assert (await delete(cluster, 6)).low_watermark == 6
    assert renamed == []
    for node in (1, 2, 3):
        cluster.nodes[node].housekeeping.remove_deleted()
    logs = [cluster.replica(node).log for node in (1, 2, 3)]
    await cluster.until(lambda: not any(log.deletions.has_live for log in logs))
    assert len(renamed) >= 3


async def test_a_replica_that_does_not_answer_is_waited_for_until_the_time_is_up(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    await filled(cluster)
    cluster.cut.update(((3, 1), (1, 3)))
    result = await delete(cluster, 6, timeout_ms=300)
    assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert cluster.replica(2).log.start_offset == 6
    cluster.cut.clear()
    result = await delete(cluster, 6)
    assert (result.error_code, result.low_watermark) == (0, 6), "what timed out is done all the same"


async def test_a_request_that_waits_fails_when_another_broker_leads(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    await filled(cluster)
    cluster.cut.update(((3, 1), (1, 3)))
    told: list[Exception | None] = []
    cluster.led(1).delete_before(6)
    cluster.led(1).await_low_watermark(6, told.append)
    assert not told
    cluster.become(leader=2)
    (error,) = told
    assert error is not None


async def test_a_new_replica_accepts_the_batch_in_whose_middle_the_leaders_log_begins(new_cluster: NewCluster) -> None:
    cluster = new_cluster(nodes=2, **{"replica.fetch.max.bytes": "1"})
    await cluster.stop(2)
    cluster.become(isr=(1,))
    cluster.append(1, *(b"%d" % number for number in range(10)))
    cluster.append(1, b"10", b"11")
    cluster.led(1).delete_before(5)
    shutil.rmtree(cluster.directory / "2")
    cluster.start(2)
    await cluster.until(lambda: cluster.replica(2).log.end_offset == 12)
    follower = cluster.replica(2).log
    assert follower.start_offset == 5
    assert cluster.values(2) == cluster.values(1)
    await cluster.until(lambda: set(cluster.partition.isr) == {1, 2})
    await cluster.stop(2)
    cluster.start(2)
    assert (cluster.replica(2).log.start_offset, cluster.replica(2).log.end_offset) == (5, 12)
