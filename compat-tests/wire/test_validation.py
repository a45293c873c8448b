"""Batches whose payload lies: refused where every record is read, stored where only the header is (relaxed).

Each was sent to Apache Kafka 4.3.1 first. Where it answers UNKNOWN_SERVER_ERROR we say INVALID_RECORD, and what it
stores though no consumer can tell the records' offsets (uncompressed records with false offset deltas; a record's size
that is wrong within a compressed batch) we refuse.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from harness.batches import Batch, Record, encode_records, varint
from harness.errors import Error
from harness.requests import end_offset, fetch, fetched, new_producer_id, partition_to_fetch, produce
from harness.topic import Topic, TopicMaker
from harness.wire import Wire

NONE, GZIP = 0, 1
IN_TWO_HOURS_MS = 2 * 3600 * 1000
NOW_MS = int(time.time() * 1000)


def record(
    offset: int = 0, *, key: bytes = b"\2k", value: bytes = b"\2v", headers: bytes = b"\0", size: int | None = None
) -> bytes:
    """Key, value and headers as they stand on the wire."""
    body = b"\0\0" + varint(offset) + key + value + headers
    return varint(len(body) if size is None else size) + body


THREE = record(0) + record(1) + record(2)
REST = record(1) + record(2)


@dataclass(frozen=True, kw_only=True)
class Lie:
    payload: bytes
    kafka: tuple[Error, Error] = (Error.INVALID_RECORD, Error.INVALID_RECORD)  # plain, compressed
    is_truth: bool = False


ACCEPTED_PLAIN = (Error.NONE, Error.UNKNOWN_SERVER_ERROR)
ACCEPTED_COMPRESSED = (Error.INVALID_RECORD, Error.NONE)
TRUTH = (Error.NONE, Error.NONE)

LIES: dict[str, Lie] = {
    "offset deltas all 0": Lie(payload=record(0) * 3, kafka=ACCEPTED_PLAIN),
    "offset deltas with a gap": Lie(payload=record(0) + record(5) + record(2), kafka=ACCEPTED_PLAIN),
    "negative offset delta": Lie(payload=record(0) + record(-1) + record(2), kafka=ACCEPTED_PLAIN),
    "fewer records than said": Lie(payload=record(0) + record(1)),
    "more records than said": Lie(payload=THREE + record(3)),
    "a byte after the last record": Lie(payload=THREE + b"\0"),
    "garbage": Lie(payload=bytes(range(100, 200))),
    "no payload": Lie(payload=b""),
    "record of size 0": Lie(payload=b"\0" + REST),
    "record of negative size": Lie(payload=varint(-5) + REST),
    "record larger than the batch": Lie(payload=record(0, size=2**30) + REST, kafka=ACCEPTED_COMPRESSED),
    "record smaller than its fields": Lie(payload=record(0, size=6) + REST, kafka=ACCEPTED_COMPRESSED),
    "bytes left in a record": Lie(payload=record(0, headers=b"\0xx") + REST),
    "key beyond its record": Lie(payload=record(0, key=varint(5)) + REST),
    "value larger than the batch": Lie(payload=record(0, value=varint(2**30)) + REST),
    "negative number of headers": Lie(payload=record(0, headers=b"\1") + REST),
    "more headers than bytes": Lie(payload=record(0, headers=varint(1000)) + REST),
    "header without a key": Lie(payload=record(0, headers=b"\2\1\1") + REST),
    "varint that does not end": Lie(payload=record(0, key=b"\x80" * 9) + REST),
    "nothing wrong": Lie(payload=THREE, kafka=TRUTH, is_truth=True),
    "null key and value": Lie(payload=record(0, key=b"\1", value=b"\1") + REST, kafka=TRUTH, is_truth=True),
    "header key that is no UTF-8": Lie(payload=record(0, headers=b"\2\4\xff\xfe\1") + REST, kafka=TRUTH, is_truth=True),
}
ALL_LIES = pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
BOTH_FORMS = pytest.mark.parametrize("codec", [NONE, GZIP], ids=["plain", "gzip"])


def lying(lie: Lie, codec: int) -> bytes:
    payload = gzip.compress(lie.payload) if codec else lie.payload
    return Batch(payload=payload, attributes=codec, record_count=3, last_offset_delta=2).encode()


@pytest.fixture
def strict_topic(make_topic: TopicMaker, is_control: bool) -> Callable[..., Topic]:
    def make(**configs: str) -> Topic:
        return make_topic(**configs) if is_control else make_topic(tidemark_produce_validation="strict", **configs)

    return make


@BOTH_FORMS
@ALL_LIES
def test_strict_refuses_lies_and_goes_on(
    wire: Wire, strict_topic: Callable[..., Topic], is_control: bool, lie: Lie, codec: int
) -> None:
    topic = strict_topic()
    ours = Error.NONE if lie.is_truth else Error.INVALID_RECORD
    expected = lie.kafka[codec] if is_control else ours
    assert Error(produce(wire, topic.name, lying(lie, codec)).error_code) == expected
    stored = 3 if expected == Error.NONE else 0
    assert end_offset(wire, topic.name) == stored
    assert produce(wire, topic.name, Batch().encode()).base_offset == stored


@BOTH_FORMS
def test_relaxed_stores_what_it_does_not_look_at(
    wire: Wire, make_topic: TopicMaker, is_control: bool, codec: int
) -> None:
    if is_control:
        return
    topic = make_topic(tidemark_produce_validation="relaxed")
    for count, lie in enumerate(LIES.values()):
        sent = lying(lie, codec)
        assert produce(wire, topic.name, sent).base_offset == 3 * count
        (partition,) = fetched(fetch(wire, topic.id, partition_to_fetch(offset=3 * count))).values()
        assert bytes(partition.records)[16:] == sent[16:]


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("payload", [b"garbage, garbage, garbage", b""], ids=["garbage", "nothing"])
def test_strict_refuses_what_does_not_decompress(
    wire: Wire, strict_topic: Callable[..., Topic], is_control: bool, codec: int, payload: bytes
) -> None:
    topic = strict_topic()
    answer = produce(wire, topic.name, Batch(payload=payload, attributes=codec).encode())
    theirs = Error.INVALID_RECORD if (codec, payload) == (4, b"") else Error.UNKNOWN_SERVER_ERROR
    assert answer.error_code == (theirs if is_control else Error.INVALID_RECORD)
    assert end_offset(wire, topic.name) == 0


@BOTH_FORMS
def test_a_record_from_the_future_is_named(wire: Wire, strict_topic: Callable[..., Topic], codec: int) -> None:
    topic = strict_topic()
    records = (Record(), Record(timestamp_delta=IN_TWO_HOURS_MS), Record())
    lying_header = Batch(records=records, attributes=codec, base_timestamp=NOW_MS, max_timestamp=NOW_MS)
    answer = produce(wire, topic.name, lying_header.encode())
    assert answer.error_code == Error.INVALID_TIMESTAMP
    assert [each.batch_index for each in answer.record_errors] == [1]


@pytest.mark.parametrize(
    "said", [NOW_MS + IN_TWO_HOURS_MS, NOW_MS - IN_TWO_HOURS_MS, -1], ids=["too late", "too early", "none"]
)
@BOTH_FORMS
def test_the_largest_timestamp_is_put_right(
    wire: Wire, strict_topic: Callable[..., Topic], codec: int, said: int
) -> None:
    topic = strict_topic()
    sent = Batch(attributes=codec, base_timestamp=NOW_MS, max_timestamp=said)
    assert produce(wire, topic.name, sent.encode()).error_code == Error.NONE
    (partition,) = fetched(fetch(wire, topic.id, partition_to_fetch())).values()
    assert bytes(partition.records)[16:] == sent.but(max_timestamp=NOW_MS).encode()[16:]


def many_records(count: int) -> bytes:
    return encode_records([Record(key=b"k")] * count)


def sent_together(wire: Wire, topic: Topic, batches: list[bytes], *, acks: int = -1) -> list[Any]:
    """As five requests in flight."""
    asked = [
        wire.ask(
            "Produce", 9, transactional_id=None, acks=acks, timeout_ms=10_000,
            topic_data=[{"name": topic.name, "partition_data": [{"index": 0, "records": records}]}],
        )
        for records in batches
    ]  # fmt: skip
    answers = [wire.answer("Produce", 9, correlation_id=each) for each in asked]
    return [answer.responses[0].partition_responses[0] for answer in answers]


@pytest.mark.parametrize("settings", [{}, {"cleanup_policy": "compact"}], ids=["strict", "compacted"])
def test_large_and_small_batches_keep_their_order(
    wire: Wire, strict_topic: Callable[..., Topic], settings: dict[str, str]
) -> None:
    """The large ones are read on a thread, and the small ones behind them must not overtake."""
    topic = strict_topic(**settings)
    producer_id, sequence, batches = new_producer_id(wire), 0, []
    large = gzip.compress(many_records(5000))
    for count in (5000, 1, 5000, 2, 5000):
        payload = large if count == 5000 else gzip.compress(many_records(count))
        batches.append(
            Batch(
                payload=payload, attributes=GZIP, record_count=count, last_offset_delta=count - 1,
                producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
            ).encode()
        )  # fmt: skip
        sequence += count
    answers = sent_together(wire, topic, batches)
    assert [(each.error_code, each.base_offset) for each in answers] == [
        (0, 0), (0, 5000), (0, 5001), (0, 10001), (0, 10003),
    ]  # fmt: skip


def test_a_lie_among_many_is_refused_alone(wire: Wire, strict_topic: Callable[..., Topic]) -> None:
    topic = strict_topic()
    good = Batch(payload=many_records(3000), record_count=3000, last_offset_delta=2999).encode()
    bad = Batch(payload=many_records(2999) + b"\0" * 9, record_count=3000, last_offset_delta=2999).encode()
    answers = sent_together(wire, topic, [good, bad, good, bad, Batch().encode()])
    refused = (Error.INVALID_RECORD, -1)
    assert [(each.error_code, each.base_offset) for each in answers] == [
        (0, 0), refused, (0, 3000), refused, (0, 6000),
    ]  # fmt: skip
