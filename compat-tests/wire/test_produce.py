"""Produce by hand: what is refused, with which code, and that nothing of it is written."""

from __future__ import annotations

import contextlib
import struct
import time
import uuid
from collections.abc import Callable

import pytest
from harness.batches import Batch, Record, batch_of
from harness.errors import Error
from harness.requests import batches, end_offset, fetch, fetched, new_producer_id, partition_to_fetch, produce
from harness.topic import Topic, TopicMaker
from harness.wire import Closed, Wire

IN_TWO_HOURS_MS = 2 * 3600 * 1000


def now_ms() -> int:
    return int(time.time() * 1000)


# Each was sent to Apache Kafka 4.3.1 first; the code is its answer.
REFUSED: dict[str, tuple[bytes, Error]] = {
    "wrong CRC": (batch_of(b"a", crc=1), Error.CORRUPT_MESSAGE),
    "magic 0": (batch_of(b"a", magic=0), Error.INVALID_RECORD),
    "magic 1": (batch_of(b"a", magic=1), Error.INVALID_RECORD),
    "magic 3": (batch_of(b"a", magic=3), Error.CORRUPT_MESSAGE),
    "count above the offsets": (batch_of(b"a", record_count=2), Error.INVALID_RECORD),
    "count below the offsets": (batch_of(b"a", b"b", record_count=1), Error.INVALID_RECORD),
    "offsets beyond the count": (batch_of(b"a", b"b", last_offset_delta=5), Error.INVALID_RECORD),
    "no records": (batch_of(record_count=0, last_offset_delta=0), Error.INVALID_RECORD),
    "negative count": (batch_of(b"a", record_count=-1), Error.INVALID_RECORD),
    "two batches": (batch_of(b"a") + batch_of(b"b"), Error.INVALID_RECORD),
    "empty": (b"", Error.INVALID_RECORD),
    "shorter than a header": (b"abc", Error.INVALID_RECORD),
    "cut short": (batch_of(b"a" * 100)[:-5], Error.INVALID_RECORD),
    "length too small": (batch_of(b"a", length=10), Error.CORRUPT_MESSAGE),
    "negative length": (batch_of(b"a", length=-10), Error.CORRUPT_MESSAGE),
    "control batch": (batch_of(b"a", attributes=0x20), Error.INVALID_RECORD),
    "base offset not 0": (batch_of(b"a", base_offset=5), Error.INVALID_RECORD),
    "producer id without sequence": (batch_of(b"a", producer_id=77, producer_epoch=0), Error.INVALID_RECORD),
    "larger than max.message.bytes": (batch_of(bytes(1_100_000)), Error.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize(("records", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_batch_is_refused_and_nothing_is_written(wire: Wire, made: Topic, records: bytes, error: Error) -> None:
    answer = produce(wire, made.name, records)
    assert (Error(answer.error_code), answer.base_offset) == (error, -1)
    assert end_offset(wire, made.name) == 0
    assert produce(wire, made.name, batch_of(b"good")).base_offset == 0


def test_records_of_a_compressed_batch_may_not_be_garbage_to_the_next_reader(wire: Wire, made: Topic) -> None:
    """Whatever is answered, a batch that was accepted must come back byte for byte."""
    records = batch_of(b"x" * 100, attributes=1)
    assert produce(wire, made.name, records).error_code == Error.NONE
    (partition,) = fetched(fetch(wire, made.id, partition_to_fetch())).values()
    # Base offset and leader epoch are the broker's to write; the rest is the producer's.
    returned = bytes(partition.records)
    assert returned[16:] == records[16:]
    assert len(returned) == len(records)


def test_null_records_do_not_hang_the_connection(connect: Callable[..., Wire], made: Topic, is_control: bool) -> None:
    sender = connect()
    if is_control:  # Apache Kafka 4.3.1 never answers and leaves the connection stuck: not a thing to imitate.
        return
    with contextlib.suppress(Closed):
        assert produce(sender, made.name, None).error_code != Error.NONE
    assert end_offset(connect(), made.name) == 0


def test_timestamp_in_the_far_future_is_refused(wire: Wire, made: Topic) -> None:
    answer = produce(wire, made.name, batch_of(b"a", base_timestamp=now_ms() + IN_TWO_HOURS_MS))
    assert answer.error_code == Error.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0]
    assert end_offset(wire, made.name) == 0


def test_unset_timestamp_is_accepted(wire: Wire, made: Topic) -> None:
    assert produce(wire, made.name, batch_of(b"a", base_timestamp=-1)).error_code == Error.NONE


@pytest.mark.parametrize("acks", [5, -2, 2])
def test_odd_acks_are_refused(wire: Wire, made: Topic, acks: int) -> None:
    assert produce(wire, made.name, batch_of(b"a"), acks=acks).error_code == Error.INVALID_REQUIRED_ACKS
    assert end_offset(wire, made.name) == 0


@pytest.mark.parametrize("partition", [7, -1])
def test_unknown_partition(wire: Wire, made: Topic, partition: int) -> None:
    answer = produce(wire, made.name, batch_of(b"a"), partition=partition)
    assert (answer.index, answer.error_code) == (partition, Error.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("name", ["no-such-topic", "bad name", ""])
def test_unknown_topic_is_not_created_by_produce(wire: Wire, name: str) -> None:
    for _ in range(2):
        assert produce(wire, name, batch_of(b"a")).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("topic_id", [uuid.uuid4(), uuid.UUID(int=0)], ids=["unknown", "zero"])
def test_unknown_topic_id(wire: Wire, topic_id: uuid.UUID) -> None:
    answer = wire.call(
        "Produce", 13, transactional_id=None, acks=-1, timeout_ms=1000,
        topic_data=[{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}],
    )  # fmt: skip
    assert answer.responses[0].partition_responses[0].error_code == Error.UNKNOWN_TOPIC_ID


def test_produce_by_topic_id(wire: Wire, made: Topic) -> None:
    answer = wire.call(
        "Produce", 13, transactional_id=None, acks=-1, timeout_ms=1000,
        topic_data=[{"topic_id": made.id, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}],
    )  # fmt: skip
    assert answer.responses[0].topic_id == made.id
    assert answer.responses[0].partition_responses[0].error_code == Error.NONE


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name_is_served(wire: Wire, made: Topic, version: int) -> None:
    answer = produce(wire, made.name, batch_of(b"a"), version=version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (Error.NONE, 0, -1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_listed_for_old_clients_only_close_the_connection(
    connect: Callable[..., Wire], made: Topic, version: int
) -> None:
    sender = connect()
    with pytest.raises(Closed):
        produce(sender, made.name, batch_of(b"a"), version=version)


def test_acks_0_gets_no_answer_and_is_written(wire: Wire, made: Topic) -> None:
    wire.ask(
        "Produce", 9, transactional_id=None, acks=0, timeout_ms=1000,
        topic_data=[{"name": made.name, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}],
    )  # fmt: skip
    # The next answer on the connection is that of the next request, and it sees the record.
    assert end_offset(wire, made.name) == 1


def test_acks_0_with_an_error_closes_the_connection(connect: Callable[..., Wire]) -> None:
    # No answer can carry the error, so the end of the connection is how the producer learns of it.
    sender = connect()
    sender.ask(
        "Produce", 9, transactional_id=None, acks=0, timeout_ms=1000,
        topic_data=[{"name": "no-such-topic", "partition_data": [{"index": 0, "records": batch_of(b"a")}]}],
    )  # fmt: skip
    assert sender.is_closed_by_broker()


def test_one_bad_partition_does_not_spoil_the_others(wire: Wire, make_topic: TopicMaker) -> None:
    topic = make_topic(partitions=3)
    answer = wire.call(
        "Produce", 9, transactional_id=None, acks=-1, timeout_ms=1000,
        topic_data=[
            {
                "name": topic.name,
                "partition_data": [
                    {"index": 0, "records": batch_of(b"a")},
                    {"index": 1, "records": batch_of(b"a", crc=3)},
                    {"index": 2, "records": batch_of(b"a")},
                ],
            }
        ],
    )  # fmt: skip
    errors = {partition.index: partition.error_code for partition in answer.responses[0].partition_responses}
    assert errors == {0: Error.NONE, 1: Error.CORRUPT_MESSAGE, 2: Error.NONE}
    assert [end_offset(wire, topic.name, partition=index) for index in range(3)] == [1, 0, 1]


@pytest.mark.parametrize(
    "records",
    [(Record(value=b"no key"),), (Record(key=b"k", value=b"1"), Record(value=b"no key"))],
    ids=["only", "second of two"],
)
def test_compacted_topic_refuses_records_without_key(
    wire: Wire, make_topic: TopicMaker, records: tuple[Record, ...]
) -> None:
    topic = make_topic(cleanup_policy="compact")
    answer = produce(wire, topic.name, Batch(records=records).encode())
    assert answer.error_code == Error.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [len(records) - 1]
    assert end_offset(wire, topic.name) == 0


def test_log_append_time_is_answered_and_stored(wire: Wire, make_topic: TopicMaker) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before = now_ms()
    answer = produce(wire, topic.name, batch_of(b"a", base_timestamp=1000))
    assert before <= answer.log_append_time_ms <= now_ms()
    (partition,) = fetched(fetch(wire, topic.id, partition_to_fetch())).values()
    (batch,) = batches(partition)
    assert batch.attributes & 8
    assert batch.max_timestamp == answer.log_append_time_ms


class Sequenced:
    """An idempotent producer that may choose its sequence numbers."""

    def __init__(self, wire: Wire, topic: Topic, *, producer_id: int) -> None:
        self.wire, self.topic, self.producer_id = wire, topic, producer_id

    def send(self, sequence: int, *, count: int = 1, epoch: int = 0) -> tuple[Error, int]:
        values = [b"%d" % (sequence + index) for index in range(count)]
        records = batch_of(*values, producer_id=self.producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(self.wire, self.topic.name, records)
        return Error(answer.error_code), answer.base_offset


@pytest.fixture
def sequenced(wire: Wire, made: Topic) -> Sequenced:
    return Sequenced(wire, made, producer_id=new_producer_id(wire))


OUT_OF_ORDER = (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_duplicates_of_the_last_five_batches_are_answered_with_their_first_offset(sequenced: Sequenced) -> None:
    for sequence in range(6):
        assert sequenced.send(sequence) == (Error.NONE, sequence)
    for sequence in range(1, 6):
        assert sequenced.send(sequence) == (Error.NONE, sequence)
    assert sequenced.send(0) == OUT_OF_ORDER, "older than the five that are remembered"
    assert end_offset(sequenced.wire, sequenced.topic.name) == 6


def test_gap_and_overlap_in_the_sequence_are_refused(sequenced: Sequenced) -> None:
    assert sequenced.send(0) == (Error.NONE, 0)
    assert sequenced.send(1, count=2) == (Error.NONE, 1)
    assert sequenced.send(9) == OUT_OF_ORDER
    assert sequenced.send(1, count=1) == OUT_OF_ORDER, "a part of a batch is no duplicate of it"
    assert sequenced.send(2, count=3) == OUT_OF_ORDER
    assert sequenced.send(3) == (Error.NONE, 3)


def test_unknown_producer_may_start_at_any_sequence(sequenced: Sequenced) -> None:
    # Its earlier batches may have been deleted by retention.
    assert sequenced.send(5) == (Error.NONE, 0)


def test_new_epoch_starts_at_0_and_fences_the_old_one(sequenced: Sequenced) -> None:
    assert sequenced.send(0) == (Error.NONE, 0)
    assert sequenced.send(5, epoch=1) == OUT_OF_ORDER
    assert sequenced.send(0, epoch=1) == (Error.NONE, 1)
    assert sequenced.send(1, epoch=0) == (Error.INVALID_PRODUCER_EPOCH, -1)


def test_sequence_wraps_around_after_the_largest_int(sequenced: Sequenced) -> None:
    largest = 2**31 - 1
    assert sequenced.send(largest - 1, count=2) == (Error.NONE, 0)
    assert sequenced.send(0) == (Error.NONE, 2)


def test_producer_ids_are_unique(wire: Wire, connect: Callable[..., Wire]) -> None:
    other = connect()
    ids = [new_producer_id(connection) for _ in range(50) for connection in (wire, other)]
    assert len(set(ids)) == len(ids)


def test_active_producers_are_described(sequenced: Sequenced) -> None:
    sequenced.send(0, count=3)
    answer = sequenced.wire.call(
        "DescribeProducers", 0, topics=[{"name": sequenced.topic.name, "partition_indexes": [0, 3]}]
    )
    known, unknown = answer.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (sequenced.producer_id, 0, 2)
    assert producer.current_txn_start_offset == -1
    assert unknown.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_leader_epoch_and_offset_are_written_into_the_batch(wire: Wire, made: Topic) -> None:
    records = batch_of(b"a")
    produce(wire, made.name, records)
    produce(wire, made.name, records)
    (partition,) = fetched(fetch(wire, made.id, partition_to_fetch())).values()
    data = bytes(partition.records)
    second = data[len(records) :]
    assert struct.unpack_from(">q", second) == (1,)
    assert struct.unpack_from(">i", second, 12) == (0,)
