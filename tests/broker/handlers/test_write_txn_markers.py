from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TRANSACTION_VERSION_FROM = 2


async def write(txn: Any, version: int, *markers: WritableTxnMarker) -> list[dict[int, int]]:
    """The code of each partition, by marker."""
    answer = await txn.client.ask(WriteTxnMarkersRequest(markers=list(markers)), version)
    assert [each.producer_id for each in answer.markers] == [each.producer_id for each in markers]
    return [
        {each.partition_index: each.error_code for topic in marker.topics for each in topic.partitions}
        for marker in answer.markers
    ]


def marker(txn: Any, producer: tuple[int, int], *indexes: int, **fields: Any) -> WritableTxnMarker:
    known: dict[str, Any] = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "transaction_result": True,
        "topics": [WritableTxnMarkerTopic(name=txn.topic, partition_indexes=list(indexes))],
    }
    return WritableTxnMarker(**known | fields)


async def hanging(txn: Any, name: str) -> tuple[int, int]:
    """A transaction with one record."""
    producer: tuple[int, int] = await txn.start(name)
    await txn.add(name, producer, 0)
    assert await txn.produce(name, producer, b"x") == ErrorCode.NONE
    return producer


@pytest.mark.parametrize(("commit", "seen"), [(True, [b"x"]), (False, [])])
async def test_a_marker_ends_a_transaction_in_its_partition(
    txn: Any, name: str, version: int, commit: bool, seen: list[bytes]
) -> None:
    producer = await hanging(txn, name)
    assert await txn.end_offset() == 0
    assert await write(txn, version, marker(txn, producer, 0, transaction_result=commit)) == [{0: 0}]
    assert await txn.end_offset() == 2  # the record and the marker
    assert await txn.read() == seen


async def test_each_partition_and_marker_is_answered_by_itself(txn: Any, name: str, version: int) -> None:
    producer = await hanging(txn, name)
    other = await hanging(txn, f"{name}-other")
    codes = await write(txn, version, marker(txn, producer, 0, 99), marker(txn, other, 1))
    assert codes == [{0: 0, 99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, {1: 0}]
    missing = [WritableTxnMarkerTopic(name="missing", partition_indexes=[0])]
    codes = await write(txn, version, marker(txn, producer, topics=missing))
    assert codes == [{0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]
    assert await write(txn, version) == []


async def test_a_marker_of_an_older_epoch_is_refused(txn: Any, name: str, version: int) -> None:
    old = await txn.start(name)
    new = await hanging(txn, name)
    assert new[1] > old[1]
    assert await write(txn, version, marker(txn, old, 0)) == [{0: ErrorCode.INVALID_PRODUCER_EPOCH}]
    assert await txn.end_offset() == 0


async def test_a_marker_of_a_former_coordinator_is_refused(txn: Any, name: str, version: int) -> None:
    producer = await hanging(txn, name)
    assert await write(txn, version, marker(txn, producer, 0, coordinator_epoch=5)) == [{0: 0}]
    again = marker(txn, producer, 0, coordinator_epoch=4)
    assert await write(txn, version, again) == [{0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}]


async def test_by_the_rules_of_transaction_version_2_a_marker_has_an_epoch_of_its_own(txn: Any, name: str) -> None:
    producer_id, epoch = await hanging(txn, name)
    same = marker(txn, (producer_id, epoch), 0, transaction_version=2)
    assert await write(txn, TRANSACTION_VERSION_FROM, same) == [{0: ErrorCode.INVALID_PRODUCER_EPOCH}]
    assert await txn.end_offset() == 0
    following = marker(txn, (producer_id, epoch + 1), 0, transaction_version=2)
    assert await write(txn, TRANSACTION_VERSION_FROM, following) == [{0: 0}]
    assert await txn.end_offset() == 2


async def test_a_partition_that_another_leads_is_not_marked(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [2])
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    request = WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=1, topics=topics)])
    for version in (1, 2):
        answer = await cluster.client.ask(request, version)
        (partition,) = answer.markers[0].topics[0].partitions
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
