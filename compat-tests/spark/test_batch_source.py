"""The connector reads a topic as a batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from harness.confluent_client import produce_all, producer
from spark.tables import COLUMNS, Topics, by_partition, delete_before

MakeTopic = Callable[..., str]
NOON_MS = 1_790_000_000_000


def numbered(prefix: str, count: int) -> list[bytes | None]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def test_every_column_is_what_was_produced(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic()
    sender = producer(topics.bootstrap)
    sender.produce(name, b"value", key=b"key", timestamp=NOON_MS)
    sender.produce(name, None, key=b"tombstone", timestamp=NOON_MS + 1)
    sender.produce(name, b"", timestamp=NOON_MS + 2)
    assert sender.flush(30) == 0
    frame = topics.frame(subscribe=name)
    assert tuple(frame.columns) == COLUMNS
    first, second, third = topics.read(subscribe=name)
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"key", b"value", name, 0, 0)
    assert first.timestampType == 0
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(NOON_MS / 1000, UTC)
    assert (second.key, second.value) == (b"tombstone", None)
    assert (third.key, third.value) == (None, b"")


def test_append_time_is_told_as_such(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(message_timestamp_type="LogAppendTime")
    produce_all(topics.bootstrap, name, [b"a"])
    [row] = topics.read(subscribe=name)
    assert row.timestampType == 1
    assert abs(row.timestamp.timestamp() - datetime.now().timestamp()) < 600


def test_topics_by_name_by_pattern_and_by_assignment(topics: Topics, make_topic: MakeTopic) -> None:
    one, two = make_topic("-one", partitions=2), make_topic("-two")
    produce_all(topics.bootstrap, one, numbered("a", 3), partition=0)
    produce_all(topics.bootstrap, one, numbered("b", 3), partition=1)
    produce_all(topics.bootstrap, two, numbered("c", 3))
    assert topics.values(subscribe=f"{one},{two}") == [*numbered("a", 3), *numbered("b", 3), *numbered("c", 3)]
    assert topics.values(subscribePattern=f"{one[:-4]}-(one|two)") == topics.values(subscribe=f"{one},{two}")
    assert topics.values(assign=json.dumps({one: [1], two: [0]})) == [*numbered("b", 3), *numbered("c", 3)]


def test_offsets_bound_the_range_on_both_sides(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(partitions=2)
    produce_all(topics.bootstrap, name, numbered("a", 10), partition=0)
    produce_all(topics.bootstrap, name, numbered("b", 10), partition=1)
    bounded = topics.read(
        subscribe=name, startingOffsets=by_partition(name, [3, -2]), endingOffsets=by_partition(name, [7, -1])
    )
    assert [(row.partition, row.offset) for row in bounded] == [
        *((0, offset) for offset in range(3, 7)),
        *((1, offset) for offset in range(10)),
    ]


def test_times_bound_the_range_on_both_sides(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(partitions=2)
    sender = producer(topics.bootstrap)
    for number in range(20):
        sender.produce(name, str(number).encode(), partition=number % 2, timestamp=NOON_MS + 1000 * number)
    assert sender.flush(30) == 0
    first, end = NOON_MS + 5000, NOON_MS + 12_000
    expected = sorted(str(number).encode() for number in range(5, 12))
    everywhere = topics.values(subscribe=name, startingTimestamp=first, endingTimestamp=end)
    assert sorted(value or b"" for value in everywhere) == expected
    each = topics.values(
        subscribe=name,
        startingOffsetsByTimestamp=by_partition(name, [first, first]),
        endingOffsetsByTimestamp=by_partition(name, [end, end]),
    )
    assert each == everywhere
    late = {"startingTimestamp": NOON_MS + 1_000_000, "subscribe": name}
    assert topics.values(**late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match=r"(?i)no offset matched|timestamp"):
        topics.values(**late)


def test_headers_come_when_asked_for(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic()
    sender = producer(topics.bootstrap)
    sender.produce(name, b"with", headers=[("a", b"1"), ("a", b"2"), ("none", None), ("", b"")])
    sender.produce(name, b"without")
    assert sender.flush(30) == 0
    having, without = topics.read(subscribe=name, includeHeaders="true")
    assert [(header.key, header.value) for header in having.headers] == [
        ("a", b"1"),
        ("a", b"2"),
        ("none", None),
        ("", b""),
    ]
    assert without.headers is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(topics: Topics, make_topic: MakeTopic, codec: str) -> None:
    name = make_topic()
    values = [bytes([65 + number % 26]) * 400 for number in range(200)]
    produce_all(topics.bootstrap, name, values, **{"compression.type": codec, "linger.ms": 20})
    assert topics.values(subscribe=name) == values


def test_few_partitions_are_read_by_many_tasks(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(partitions=2)
    produce_all(topics.bootstrap, name, numbered("a", 90), partition=0)
    produce_all(topics.bootstrap, name, numbered("b", 10), partition=1)
    frame = topics.frame(subscribe=name, minPartitions=10)
    assert frame.rdd.getNumPartitions() == 10
    assert len({(row.partition, row.offset) for row in frame.collect()}) == 100


def test_an_empty_topic_gives_no_rows(topics: Topics, make_topic: MakeTopic) -> None:
    assert topics.values(subscribe=make_topic(partitions=3)) == []


def test_a_group_id_of_ones_own_is_used(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic()
    produce_all(topics.bootstrap, name, numbered("a", 5))
    assert topics.values(subscribe=name, kafka_group_id=f"group-of-{name}") == numbered("a", 5)
    assert topics.values(subscribe=name, groupIdPrefix="spark-reader") == numbered("a", 5)


def test_isolation_levels_see_committed_or_everything(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic()
    sender = producer(topics.bootstrap, **{"transactional.id": f"id-{name}"})
    sender.init_transactions(30)
    for number, commit in enumerate([True, False, True]):
        sender.begin_transaction()
        sender.produce(name, f"t{number}".encode())
        assert sender.flush(30) == 0
        (sender.commit_transaction if commit else sender.abort_transaction)(30)
    assert topics.values(subscribe=name, kafka_isolation_level="read_committed") == [b"t0", b"t2"]
    assert topics.values(subscribe=name, kafka_isolation_level="read_uncommitted") == [b"t0", b"t1", b"t2"]


def test_deleted_records_fail_a_batch_or_are_left_out(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic()
    produce_all(topics.bootstrap, name, numbered("a", 20))
    delete_before(topics.bootstrap, name, 8)
    from_start = {"subscribe": name, "startingOffsets": by_partition(name, [2])}
    assert topics.values(**from_start, failOnDataLoss="false") == numbered("a", 20)[8:]
    with pytest.raises(Exception, match=r"(?i)data loss|failOnDataLoss|out of range"):
        topics.values(**from_start, failOnDataLoss="true")
    assert topics.values(subscribe=name) == numbered("a", 20)[8:]


def test_a_topic_that_is_not_there_is_an_error(topics: Topics, topic: str) -> None:
    with pytest.raises(Exception, match=r"(?i)unknown ?topic|does not host|not exist"):
        topics.values(subscribe=topic)
