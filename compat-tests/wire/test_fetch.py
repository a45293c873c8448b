"""Fetch by hand: limits, long poll and errors."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import pytest
from harness.batches import batch_of
from harness.errors import Error
from harness.requests import batches, fetch, fetched, partition_to_fetch, produce
from harness.topic import Topic, TopicMaker
from harness.wire import Closed, Wire

PAIR = batch_of(b"x" * 1000, b"y" * 1000)


@pytest.fixture
def filled(wire: Wire, make_topic: TopicMaker) -> Topic:
    """Partitions 0 and 1 hold three batches of two records each; partition 2 is empty."""
    topic = make_topic(partitions=3)
    for partition in (0, 1):
        for _ in range(3):
            assert produce(wire, topic.name, PAIR, partition=partition).error_code == 0
    return topic


def sizes(answer: object) -> dict[int, int]:
    return {index: len(partition.records or b"") for index, partition in fetched(answer).items()}


def test_whole_partition_comes_with_its_marks(wire: Wire, filled: Topic) -> None:
    (partition,) = fetched(fetch(wire, filled.id, partition_to_fetch())).values()
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (Error.NONE, 6, 6)
    assert (partition.log_start_offset, partition.preferred_read_replica) == (0, -1)
    assert [batch.base_offset for batch in batches(partition)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes"), [(1, 1 << 20), (1 << 20, 1), (0, 0)], ids=["request", "partition", "zero"]
)
def test_first_batch_is_returned_even_when_larger_than_the_limits(
    wire: Wire, filled: Topic, max_bytes: int, partition_max_bytes: int
) -> None:
    asked = partition_to_fetch(partition_max_bytes=partition_max_bytes)
    (partition,) = fetched(fetch(wire, filled.id, asked, max_bytes=max_bytes)).values()
    assert [batch.base_offset for batch in batches(partition)] == [0]
    assert len(partition.records) == len(PAIR)


def test_only_the_first_partition_with_data_may_exceed_the_limits(wire: Wire, filled: Topic) -> None:
    asked = [partition_to_fetch(index, partition_max_bytes=1) for index in (2, 1, 0)]
    assert sizes(fetch(wire, filled.id, *asked)) == {2: 0, 1: len(PAIR), 0: 0}


def test_request_limit_is_shared_by_the_partitions(wire: Wire, filled: Topic) -> None:
    answer = fetch(wire, filled.id, partition_to_fetch(0), partition_to_fetch(1), max_bytes=len(PAIR) * 4)
    got = sizes(answer)
    assert got[0] == len(PAIR) * 3
    assert got[1] <= len(PAIR)


def test_partition_limit_holds_beyond_the_first_batch(wire: Wire, filled: Topic) -> None:
    answer = fetch(wire, filled.id, partition_to_fetch(partition_max_bytes=len(PAIR) * 2 + 1))
    (partition,) = fetched(answer).values()
    assert len(partition.records) <= len(PAIR) * 2 + 1
    assert [batch.base_offset for batch in batches(partition)] == [0, 2]


def test_offset_within_a_batch_returns_that_batch(wire: Wire, filled: Topic) -> None:
    (partition,) = fetched(fetch(wire, filled.id, partition_to_fetch(offset=3))).values()
    assert [batch.base_offset for batch in batches(partition)] == [2, 4]


@pytest.mark.parametrize("offset", [7, -1, -5])
def test_offset_out_of_range_is_answered_at_once(wire: Wire, filled: Topic, offset: int) -> None:
    started = time.monotonic()
    (partition,) = fetched(fetch(wire, filled.id, partition_to_fetch(offset=offset), max_wait_ms=10_000)).values()
    assert (partition.error_code, partition.high_watermark) == (Error.OFFSET_OUT_OF_RANGE, -1)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("epoch", "error"), [(0, Error.NONE), (-1, Error.NONE), (5, Error.UNKNOWN_LEADER_EPOCH)])
def test_leader_epoch_of_the_request_is_checked(wire: Wire, filled: Topic, epoch: int, error: Error) -> None:
    (partition,) = fetched(fetch(wire, filled.id, partition_to_fetch(current_leader_epoch=epoch))).values()
    assert partition.error_code == error


def test_unknown_partition_topic_id_and_name(wire: Wire, filled: Topic) -> None:
    (partition,) = fetched(fetch(wire, filled.id, partition_to_fetch(9))).values()
    assert partition.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    for unknown in (uuid.uuid4(), uuid.UUID(int=0)):
        (partition,) = fetched(fetch(wire, unknown, partition_to_fetch())).values()
        assert partition.error_code == Error.UNKNOWN_TOPIC_ID
    answer = fetch_by_name(wire, 12, "no-such-topic")
    (partition,) = fetched(answer).values()
    assert partition.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def fetch_by_name(wire: Wire, version: int, name: str) -> object:
    return wire.call(
        "Fetch", version, replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
        session_id=0, session_epoch=-1, topics=[{"topic": name, "partitions": [partition_to_fetch()]}],
        forgotten_topics_data=[], rack_id="",
    )  # fmt: skip


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name_is_served(wire: Wire, filled: Topic, version: int) -> None:
    (partition,) = fetched(fetch_by_name(wire, version, filled.name)).values()
    assert partition.error_code == Error.NONE
    assert [batch.last_offset for batch in batches(partition)] == [1, 3, 5]


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_by_id_is_served(wire: Wire, filled: Topic, version: int) -> None:
    answer = fetch(wire, filled.id, partition_to_fetch(), version=version)
    assert answer.responses[0].topic_id == filled.id
    (partition,) = fetched(answer).values()
    assert [batch.last_offset for batch in batches(partition)] == [1, 3, 5]


def test_version_3_closes_the_connection(connect: Callable[..., Wire], filled: Topic) -> None:
    with pytest.raises(Closed):
        fetch_by_name(connect(), 3, filled.name)


def test_read_committed_reader_is_told_of_no_aborted_transactions(wire: Wire, filled: Topic) -> None:
    (partition,) = fetched(fetch(wire, filled.id, partition_to_fetch(), isolation_level=1)).values()
    assert partition.aborted_transactions == []
    assert len(batches(partition)) == 3


def test_empty_fetch_waits_for_max_wait_ms(wire: Wire, filled: Topic) -> None:
    started = time.monotonic()
    (partition,) = fetched(fetch(wire, filled.id, partition_to_fetch(offset=6), max_wait_ms=300)).values()
    assert time.monotonic() - started >= 0.29
    assert (partition.error_code, len(partition.records or b"")) == (Error.NONE, 0)


def test_min_bytes_0_does_not_wait(wire: Wire, filled: Topic) -> None:
    started = time.monotonic()
    fetch(wire, filled.id, partition_to_fetch(offset=6), max_wait_ms=10_000, min_bytes=0)
    assert time.monotonic() - started < 5


def test_long_poll_wakes_at_once_on_produce(wire: Wire, filled: Topic, connect: Callable[..., Wire]) -> None:
    """Started before the record exists, answered as soon as it does: far sooner than max_wait_ms."""
    reader = connect()
    answers: list[tuple[float, object]] = []

    def read() -> None:
        answer = fetch(reader, filled.id, partition_to_fetch(0, 6), partition_to_fetch(2, 0), max_wait_ms=15_000)
        answers.append((time.monotonic(), answer))

    waiting = threading.Thread(target=read)
    waiting.start()
    # A fetch that was not yet parked would be answered with the record as well, so no pause is needed here.
    produce(wire, filled.name, batch_of(b"wake"), partition=2)
    produced = time.monotonic()
    waiting.join(20)
    ((at, answer),) = answers
    assert at - produced < 2
    assert [batch.values for batch in batches(fetched(answer)[2])] == [(b"wake",)]


def test_min_bytes_counts_over_several_produces(wire: Wire, filled: Topic, connect: Callable[..., Wire]) -> None:
    reader = connect()
    number = reader.ask(
        "Fetch", 17, max_wait_ms=15_000, min_bytes=len(PAIR) * 3, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[{"topic_id": filled.id, "partitions": [partition_to_fetch(0, 6), partition_to_fetch(1, 6)]}],
    )  # fmt: skip
    started = time.monotonic()
    for partition in (0, 1, 0):
        produce(wire, filled.name, PAIR, partition=partition)
    got = sizes(reader.answer("Fetch", 17, correlation_id=number))
    assert got == {0: len(PAIR) * 2, 1: len(PAIR)}
    assert time.monotonic() - started < 10


def test_waiting_reader_of_a_deleted_topic_is_told(wire: Wire, made: Topic, connect: Callable[..., Wire]) -> None:
    reader = connect()
    fields = {
        "max_wait_ms": 3000, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0,
        "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
        "topics": [{"topic_id": made.id, "partitions": [partition_to_fetch()]}],
    }  # fmt: skip
    number = reader.ask("Fetch", 17, **fields)
    wire.call("DeleteTopics", 6, topics=[{"name": made.name, "topic_id": uuid.UUID(int=0)}], timeout_ms=5000)
    reader.answer("Fetch", 17, correlation_id=number)
    (partition,) = fetched(reader.call("Fetch", 17, **fields)).values()
    assert partition.error_code in (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION)


def test_large_fetch_arrives_whole(wire: Wire, make_topic: TopicMaker) -> None:
    topic = make_topic(max_message_bytes="2000000")
    for number in range(30):
        produce(wire, topic.name, batch_of(bytes([number]) * 1_000_000))
    answer = fetch(wire, topic.id, partition_to_fetch(partition_max_bytes=50 << 20), max_bytes=50 << 20)
    (partition,) = fetched(answer).values()
    values = [value for batch in batches(partition) for value in batch.values]
    assert values == [bytes([number]) * 1_000_000 for number in range(30)]
