"""Offsets by hand: ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness.batches import Batch, Record, batch_of
from harness.broker_process import BrokerProcess
from harness.errors import Error
from harness.requests import end_offset, fetch, fetched, list_offset, partition_to_fetch, produce
from harness.topic import Topic, TopicMaker
from harness.wire import Closed, Wire

FIRST_MS = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


@pytest.fixture
def timed(wire: Wire, make_topic: TopicMaker) -> Topic:
    """Offsets 0 to 5 at 0, 500, 1000, … 2500 ms after FIRST_MS, two to a batch; partition 1 is empty."""
    topic = make_topic(partitions=2)
    for number in range(3):
        records = (Record(value=b"a"), Record(value=b"b", timestamp_delta=500))
        produce(wire, topic.name, Batch(records=records, base_timestamp=FIRST_MS + number * 1000).encode())
    return topic


def answered(partition: Any) -> tuple[Error, int, int, int]:
    return Error(partition.error_code), partition.timestamp, partition.offset, partition.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (LATEST, 9, (-1, 6, 0)),
        (EARLIEST, 9, (-1, 0, 0)),
        (MAX_TIMESTAMP, 9, (FIRST_MS + 2500, 5, 0)),
        (EARLIEST_LOCAL, 9, (-1, 0, 0)),
        (LATEST_TIERED, 9, (-1, -1, -1)),
        (EARLIEST_PENDING_UPLOAD, 11, (-1, -1, -1)),
        (0, 9, (FIRST_MS, 0, 0)),
        (FIRST_MS, 9, (FIRST_MS, 0, 0)),
        (FIRST_MS + 1, 9, (FIRST_MS + 500, 1, 0)),
        (FIRST_MS + 500, 9, (FIRST_MS + 500, 1, 0)),
        (FIRST_MS + 1000, 9, (FIRST_MS + 1000, 2, 0)),
        (FIRST_MS + 2500, 10, (FIRST_MS + 2500, 5, 0)),
        (FIRST_MS + 2501, 9, (-1, -1, -1)),
    ],
)
def test_offset_by_timestamp(wire: Wire, timed: Topic, timestamp: int, version: int, expected: tuple[int, ...]) -> None:
    assert answered(list_offset(wire, timed.name, timestamp, version=version)) == (Error.NONE, *expected)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(LATEST, (-1, 0, 0)), (EARLIEST, (-1, 0, 0)), (MAX_TIMESTAMP, (-1, -1, -1)), (FIRST_MS, (-1, -1, -1))],
)
def test_offsets_of_an_empty_partition(wire: Wire, timed: Topic, timestamp: int, expected: tuple[int, ...]) -> None:
    assert answered(list_offset(wire, timed.name, timestamp, partition=1)) == (Error.NONE, *expected)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING_UPLOAD, 10), (-7, 10)],
)
def test_special_timestamp_newer_than_the_version_is_unsupported(
    wire: Wire, timed: Topic, timestamp: int, version: int
) -> None:
    answer = list_offset(wire, timed.name, timestamp, version=version)
    assert answered(answer) == (Error.UNSUPPORTED_VERSION, -1, -1, -1)


def test_offsets_of_what_is_not_there(wire: Wire, timed: Topic) -> None:
    for name, partition in ((timed.name, 9), ("no-such-topic", 0), ("bad name", 0)):
        answer = list_offset(wire, name, LATEST, partition=partition)
        assert answered(answer) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


def test_partition_asked_twice_is_refused(wire: Wire, timed: Topic) -> None:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    answer = wire.call(
        "ListOffsets", 8, replica_id=-1, isolation_level=0, topics=[{"name": timed.name, "partitions": [asked, asked]}]
    )
    assert {partition.error_code for partition in answer.topics[0].partitions} == {Error.INVALID_REQUEST}


def test_leader_epoch_is_checked(wire: Wire, timed: Topic) -> None:
    assert list_offset(wire, timed.name, LATEST, epoch=0).offset == 6
    assert list_offset(wire, timed.name, LATEST, epoch=5).error_code == Error.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_of_list_offsets_is_served(wire: Wire, timed: Topic, version: int) -> None:
    assert list_offset(wire, timed.name, LATEST, version=version).offset == 6


def test_list_offsets_version_0_closes_the_connection(connect: Any, timed: Topic) -> None:
    with pytest.raises(Closed):
        list_offset(connect(), timed.name, LATEST, version=0)


def epoch_end(wire: Wire, name: str, epoch: int, *, partition: int = 0, current: int = -1) -> tuple[Error, int, int]:
    answer = wire.call(
        "OffsetForLeaderEpoch", 4, replica_id=-1,
        topics=[
            {
                "topic": name,
                "partitions": [{"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}],
            }
        ],
    )  # fmt: skip
    found = answer.topics[0].partitions[0]
    return Error(found.error_code), found.leader_epoch, found.end_offset


def test_end_of_a_leader_epoch(wire: Wire, timed: Topic) -> None:
    assert epoch_end(wire, timed.name, 0) == (Error.NONE, 0, 6)
    assert epoch_end(wire, timed.name, 0, partition=1) == (Error.NONE, 0, 0)
    assert epoch_end(wire, timed.name, 5) == (Error.NONE, -1, -1)
    assert epoch_end(wire, timed.name, -1) == (Error.NONE, -1, -1)
    assert epoch_end(wire, timed.name, 0, current=9) == (Error.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert epoch_end(wire, timed.name, 0, partition=8) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert epoch_end(wire, "no-such-topic", 0) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def delete_before(wire: Wire, name: str, offset: int, *, partition: int = 0) -> tuple[Error, int]:
    answer = wire.call(
        "DeleteRecords", 2, timeout_ms=5000,
        topics=[{"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}],
    )  # fmt: skip
    found = answer.topics[0].partitions[0]
    return Error(found.error_code), found.low_watermark


def test_deleted_records_cannot_be_read(wire: Wire, timed: Topic) -> None:
    assert delete_before(wire, timed.name, 1) == (Error.NONE, 1)
    assert list_offset(wire, timed.name, EARLIEST).offset == 1
    assert list_offset(wire, timed.name, 0).offset == 1
    (partition,) = fetched(fetch(wire, timed.id, partition_to_fetch(offset=0))).values()
    assert partition.error_code == Error.OFFSET_OUT_OF_RANGE
    (partition,) = fetched(fetch(wire, timed.id, partition_to_fetch(offset=1))).values()
    assert (partition.error_code, partition.log_start_offset) == (Error.NONE, 1)
    assert delete_before(wire, timed.name, 0) == (Error.NONE, 1), "below the start: nothing to do"
    assert delete_before(wire, timed.name, -1) == (Error.NONE, 6), "-1 is the high watermark"
    assert (list_offset(wire, timed.name, EARLIEST).offset, end_offset(wire, timed.name)) == (6, 6)
    assert produce(wire, timed.name, batch_of(b"next")).base_offset == 6


@pytest.mark.parametrize("offset", [99, -2])
def test_delete_outside_the_log_is_refused(wire: Wire, timed: Topic, offset: int) -> None:
    assert delete_before(wire, timed.name, offset) == (Error.OFFSET_OUT_OF_RANGE, -1)


def test_delete_in_what_is_not_there(wire: Wire, timed: Topic) -> None:
    assert delete_before(wire, timed.name, 0, partition=9) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_before(wire, "no-such-topic", 0) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_records_of_a_compacted_topic_are_not_deleted(wire: Wire, make_topic: TopicMaker) -> None:
    topic = make_topic(cleanup_policy="compact")
    assert delete_before(wire, topic.name, 0) == (Error.POLICY_VIOLATION, -1)


def test_log_directories_tell_sizes(wire: Wire, timed: Topic, broker: BrokerProcess) -> None:
    answer = wire.call("DescribeLogDirs", 4, topics=[{"topic": timed.name, "partitions": [0, 1, 9]}])
    (directory,) = answer.results
    assert (answer.error_code, directory.error_code) == (Error.NONE, Error.NONE)
    assert Path(directory.log_dir).resolve() == broker.data.resolve()
    (topic,) = directory.topics
    segment = broker.data / f"{timed.name}-0" / f"{0:020}.log"
    sizes = {partition.partition_index: partition.partition_size for partition in topic.partitions}
    assert sizes == {0: segment.stat().st_size, 1: 0}
    assert all((p.offset_lag, p.is_future_key) == (0, False) for p in topic.partitions)
    assert directory.total_bytes > directory.usable_bytes > 0


def test_log_directories_of_all_none_and_unknown_topics(wire: Wire, timed: Topic) -> None:
    def names(topics: list[dict[str, Any]] | None) -> list[str]:
        return [topic.name for topic in wire.call("DescribeLogDirs", 4, topics=topics).results[0].topics]

    assert timed.name in names(None)
    assert names([]) == []
    assert names([{"topic": "no-such-topic", "partitions": [0]}]) == []
