"""The connector writes to topics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.confluent_client import produce_all, read_everything
from spark.tables import Topics, finish

MakeTopic = Callable[..., str]


def test_keys_values_and_headers_arrive(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic()
    rows = [(b"k", b"v", [("a", b"1"), ("b", None)]), (None, b"keyless", None), (b"tombstone", None, [])]
    topics.write(
        rows,
        "key binary, value binary, headers array<struct<key: string, value: binary>>",
        topic=name,
        includeHeaders="true",
    )
    found = [(message.key(), message.value(), message.headers()) for message in read_everything(topics.bootstrap, name)]
    assert found == [(b"k", b"v", [("a", b"1"), ("b", None)]), (None, b"keyless", None), (b"tombstone", None, None)]


def test_a_column_names_topic_and_partition(topics: Topics, make_topic: MakeTopic) -> None:
    one, two = make_topic("-one", partitions=3), make_topic("-two", partitions=3)
    topics.write(
        [("x", one, 2), ("y", two, 0), ("z", one, 1)],
        "value string, topic string, partition int",
    )
    assert [message.value() for message in read_everything(topics.bootstrap, one, partition=2)] == [b"x"]
    assert [message.value() for message in read_everything(topics.bootstrap, one, partition=1)] == [b"z"]
    assert [message.value() for message in read_everything(topics.bootstrap, two, partition=0)] == [b"y"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_by_an_idempotent_producer(topics: Topics, make_topic: MakeTopic, codec: str) -> None:
    name = make_topic()
    rows = [(f"value {number} " * 20,) for number in range(100)]
    options = {"kafka_enable_idempotence": "true", "kafka_acks": "all", "kafka_compression_type": codec}
    topics.write(rows, "value string", topic=name, **options)
    found = [message.value() for message in read_everything(topics.bootstrap, name)]
    assert found == [value.encode() for (value,) in rows]


def test_a_stream_from_topic_to_topic_writes_everything_once(
    topics: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic("-source", partitions=2), make_topic("-target")
    for number in range(2):
        values = [b"%d-%d" % (number, each) for each in range(20)]
        produce_all(topics.bootstrap, source, values, partition=number)

    def run() -> None:
        query = (
            topics.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=15)
            .selectExpr("key", "upper(cast(value as string)) as value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        finish(query)

    run()
    produce_all(topics.bootstrap, source, [b"last"])
    run()
    found = sorted(message.value() for message in read_everything(topics.bootstrap, target))
    assert found == sorted([*(b"%d-%d" % (number, each) for number in range(2) for each in range(20)), b"LAST"])


def test_a_topic_that_does_not_exist_is_created_by_the_first_write(topics: Topics, topic: str) -> None:
    topics.write([("a",)], "value string", topic=topic)
    assert topics.values(subscribe=topic) == [b"a"]


def test_a_record_that_is_too_large_fails_the_write(topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(max_message_bytes="2000")
    with pytest.raises(Exception, match=r"(?i)RecordTooLarge|larger than"):
        topics.write([("x" * 5000,)], "value string", topic=name)
