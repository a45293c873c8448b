"""`format("tidemark")` beside the connector: the same topics, the same options, the same rows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from harness.batches import Batch, Record
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all, producer
from harness.waiting import eventually
from pyspark.sql import DataFrame, SparkSession
from spark.tables import Topics, by_partition, delete_before, flat, patiently

from tidemark.pipeline.source import read_available, register
from tidemark.protocol.records import Record as LoggedRecord
from tidemark.protocol.records import build_batch

MakeTopic = Callable[..., str]
NOON_MS = 1_790_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACCESS = ("files", "protocol")


@pytest.fixture(scope="session")
def direct(spark: SparkSession, topics: Topics) -> Topics:
    register(spark)
    return replace(topics, format="tidemark")


def numbered(prefix: str, first: int, end: int) -> list[bytes | None]:
    return [f"{prefix}{number:03}".encode() for number in range(first, end)]


def assert_same(topics: Topics, direct: Topics, **options: object) -> int:
    """Every row and column, by files and by protocol, is the connector's."""
    expected = topics.read(**options)
    for access in ACCESS:
        assert direct.read(**options, tidemark_access=access) == expected, access
    return len(expected)


def test_the_columns_are_the_connectors(topics: Topics, direct: Topics, make_topic: MakeTopic) -> None:
    name = make_topic()
    for headers in ("false", "true"):
        options = {"subscribe": name, "includeHeaders": headers}
        assert direct.frame(**options).schema == topics.frame(**options).schema
        assert assert_same(topics, direct, **options) == 0  # an empty topic


def test_all_codecs_headers_nulls_and_sizes(topics: Topics, direct: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(partitions=2, segment_bytes="1048576")
    total = 0
    for number, codec in enumerate(CODECS):
        sender = producer(topics.bootstrap, **{"compression.type": codec, "linger.ms": 30})
        for each in range(240):
            sender.produce(
                name,
                (None, b"", os.urandom(3000), b"same" * 50, b"same" * 50)[each % 5 if each < 120 else 4],
                key=(None, b"", b"key-%d" % each)[each % 3],
                headers=([], [("a", b"1"), ("é", None), ("", b"")], [("a", bytes(200))])[each % 3] or None,
                partition=each % 2,
                timestamp=NOON_MS + (each * 37 % 1000) - 300,
            )
            total += 1
        assert sender.flush(30) == 0
        filler = [os.urandom(900_000) if not number else b"x" * 900_000]  # so that there are several segments
        total += len(produce_all(topics.bootstrap, name, filler, partition=number % 2).acknowledged)
    assert assert_same(topics, direct, subscribe=name, includeHeaders="true") == total
    assert assert_same(topics, direct, subscribe=name, includeHeaders="true", minPartitions=7) == total


def test_append_time_is_the_batchs_time(topics: Topics, direct: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(message_timestamp_type="LogAppendTime")
    produce_all(topics.bootstrap, name, numbered("a", 0, 5))
    assert assert_same(topics, direct, subscribe=name) == 5


def test_transactions_under_both_isolation_levels(topics: Topics, direct: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(partitions=2)
    senders = [producer(topics.bootstrap, **{"transactional.id": f"{name}-{each}"}) for each in range(2)]
    for sender in senders:
        sender.init_transactions(30)
    for number in range(6):
        for sender in senders:  # two producers, so that committed and aborted records lie between each other
            sender.begin_transaction()
        for each in range(6):
            senders[each % 2].produce(name, b"t%d-%d" % (number, each), partition=each % 2 ^ each // 2 % 2)
            assert senders[each % 2].flush(30) == 0
        for sender, commit in zip(senders, (number % 2 == 0, number % 3 == 0), strict=True):
            (sender.commit_transaction if commit else sender.abort_transaction)(30)
    produce_all(topics.bootstrap, name, numbered("plain", 0, 3))
    senders[0].begin_transaction()
    senders[0].produce(name, b"undecided", partition=0)
    assert senders[0].flush(30) == 0
    produce_all(topics.bootstrap, name, numbered("behind", 0, 2))
    try:
        assert assert_same(topics, direct, subscribe=name, kafka_isolation_level="read_uncommitted") == 36 + 3 + 1 + 2
        committed = {"subscribe": name, "kafka_isolation_level": "read_committed"}
        assert assert_same(topics, direct, **committed) == 3 * 3 + 2 * 3 + 3
        assert assert_same(topics, direct, **committed, minPartitions=9) == 3 * 3 + 2 * 3 + 3
    finally:
        senders[0].abort_transaction(30)


def test_ranges_by_offset_and_time(topics: Topics, direct: Topics, make_topic: MakeTopic) -> None:
    one, two = make_topic("-one", partitions=2), make_topic("-two")
    sender = producer(topics.bootstrap)
    for number in range(60):
        sender.produce(one, b"a%03d" % number, partition=number % 2, timestamp=NOON_MS + 1000 * number)
        sender.produce(two, b"b%03d" % number, timestamp=NOON_MS + 1000 * number)
    assert sender.flush(30) == 0
    offsets = {"startingOffsets": by_partition(one, [3, -2]), "endingOffsets": by_partition(one, [7, -1])}
    assert assert_same(topics, direct, subscribe=one, **offsets) == 4 + 30
    times = {"startingTimestamp": NOON_MS + 5500, "endingTimestamp": NOON_MS + 20_000}
    assert assert_same(topics, direct, subscribePattern=one[:-3] + "(one|two)", **times) == 14 + 14
    each = {
        "startingOffsetsByTimestamp": json.dumps({one: {"1": NOON_MS + 40_000}, two: {"0": NOON_MS}}),
        "endingOffsetsByTimestamp": json.dumps({one: {"1": NOON_MS + 90_000}, two: {"0": NOON_MS + 1000}}),
    }
    assert assert_same(topics, direct, assign=json.dumps({one: [1], two: [0]}), **each) == 10 + 1


def test_a_compacted_log_has_gaps_that_are_no_loss(
    spark: SparkSession, direct: Topics, new_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = new_broker()
    create_topic(broker.bootstrap, topic, cleanup_policy="compact")
    produce_all(broker.bootstrap, topic, [b"x"] * 40, **{"linger.ms": 0})
    broker.stop()
    [directory] = [path for path in broker.data.iterdir() if path.name == f"{topic}-0"]
    # What a cleaner leaves: records missing within batches, at their ends, and whole batches.
    log = build_batch([LoggedRecord(offset, NOON_MS, b"k", b"v%d" % offset) for offset in (1, 4, 5)], base_offset=0)
    log += Batch(records=(Record(key=b"k", value=b"w"),), base_offset=9, last_offset_delta=6, leader_epoch=0).encode()
    log += build_batch([LoggedRecord(offset, NOON_MS, b"k", None) for offset in (31, 39)], base_offset=30)
    for old in directory.glob("0000*"):
        old.unlink()
    (directory / f"{0:020}.log").write_bytes(log)
    broker.start()
    here = Topics(spark=spark, bootstrap=broker.bootstrap)
    offsets = [row.offset for row in here.read(subscribe=topic)]
    assert offsets == [1, 4, 5, 9, 31, 39]
    assert assert_same(here, replace(direct, bootstrap=broker.bootstrap), subscribe=topic, minPartitions=5) == 6


def test_deleted_records_fail_a_batch_or_are_left_out(topics: Topics, direct: Topics, make_topic: MakeTopic) -> None:
    name = make_topic()
    produce_all(topics.bootstrap, name, numbered("a", 0, 20))
    delete_before(topics.bootstrap, name, 8)
    from_start = {"subscribe": name, "startingOffsets": by_partition(name, [2])}
    assert assert_same(topics, direct, **from_start, failOnDataLoss="false") == 12
    with pytest.raises(Exception, match=f"{name}-0: offsets 2 to 7 are gone"):
        direct.read(**from_start)
    with pytest.raises(Exception, match=f"{name}-0: offsets 20 to 29 are gone"):
        direct.read(subscribe=name, endingOffsets=by_partition(name, [30]))


def test_unreachable_files_are_read_over_the_protocol(
    direct: Topics, broker: BrokerProcess, make_topic: MakeTopic
) -> None:
    name = make_topic()
    produce_all(direct.bootstrap, name, numbered("a", 0, 20))
    elsewhere = {"subscribe": name, "tidemark_log_dirs": f"{broker.data}=/nowhere"}
    assert direct.values(**elsewhere) == numbered("a", 0, 20)
    with pytest.raises(Exception, match=r"tidemark\.access=files, but: .*/nowhere"):
        direct.values(**elsewhere, tidemark_access="files")


def test_what_cannot_be_is_said_in_a_sentence(direct: Topics, make_topic: MakeTopic, topic: str) -> None:
    with pytest.raises(Exception, match=f"There is no topic {topic}-absent"):
        direct.values(subscribe=f"{topic}-absent")
    name = make_topic()
    with pytest.raises(Exception, match="startingOffsets must name every partition that is read"):
        direct.values(subscribe=name, startingOffsets='{"other": {"0": 1}}')
    with pytest.raises(Exception, match="Exactly one of the options subscribe"):
        direct.values(subscribe=name, assign=json.dumps({name: [0]}))


def test_a_restarted_stream_goes_on_where_its_checkpoint_ended(
    direct: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    first = make_topic("-first", partitions=2)
    produce_all(direct.bootstrap, first, numbered("a", 0, 30))
    reading = {"subscribePattern": first[: -len("first")] + ".*", "startingOffsets": "earliest"}
    assert flat(direct.follow(tmp_path, **reading)) == numbered("a", 0, 30)
    produce_all(direct.bootstrap, first, numbered("a", 30, 40), partition=1)
    produce_all(direct.bootstrap, make_topic("-second"), numbered("b", 0, 5))
    assert flat(direct.follow(tmp_path, **reading)) == [*numbered("a", 30, 40), *numbered("b", 0, 5)]
    assert direct.follow(tmp_path, **reading) == []


def test_records_deleted_under_a_stream_fail_it_or_are_left_out(
    direct: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    name = make_topic()
    produce_all(direct.bootstrap, name, numbered("a", 0, 10))
    reading = {"subscribe": name, "startingOffsets": "earliest"}
    assert flat(direct.follow(tmp_path, **reading)) == numbered("a", 0, 10)
    produce_all(direct.bootstrap, name, numbered("a", 10, 30))
    delete_before(direct.bootstrap, name, 25)
    with pytest.raises(Exception, match=f"{name}-0: offsets 10 to 24 are gone"):
        direct.follow(tmp_path, **reading)
    assert flat(direct.follow(tmp_path, **reading, failOnDataLoss="false")) == numbered("a", 25, 30)


def test_a_stream_keeps_to_its_limit_also_after_a_restart(
    direct: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    name = make_topic(partitions=2)
    for partition in range(2):
        produce_all(direct.bootstrap, name, numbered(f"{partition}-", 0, 25), partition=partition)
    batches: list[list[bytes]] = []

    def keep(frame: DataFrame, _batch: int) -> None:
        batches.append([bytes(row.value) for row in frame.collect()])

    def distinct() -> list[bytes]:
        return sorted({value for batch in list(batches) for value in batch})  # a batch cut off by a stop comes twice

    def run_until(enough: int) -> None:
        stream = direct.stream(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=10)
        query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)).start()
        try:
            eventually(lambda: len(distinct()) >= enough or not query.isActive, seconds_max=120)
            if failure := query.exception():
                raise failure
        finally:
            query.stop()

    for enough in (20, 50):
        patiently(lambda wanted=enough: run_until(wanted))
    assert {len(batch) for batch in batches} == {10}
    assert distinct() == [*numbered("0-", 0, 25), *numbered("1-", 0, 25)]


def test_what_is_there_now_is_read_to_its_end_batch_by_batch(
    spark: SparkSession, direct: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """What AvailableNow is for, with a limit: Spark itself would end a Python source's query after its first batch."""
    name = make_topic()
    produce_all(direct.bootstrap, name, numbered("a", 0, 25))
    batches: list[list[bytes]] = []

    def keep(frame: DataFrame, _batch: int) -> None:
        if not batches:
            produce_all(direct.bootstrap, name, numbered("b", 0, 20))  # came later
        batches.append([bytes(row.value) for row in frame.collect()])

    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    read_available(
        spark,
        {"kafka.bootstrap.servers": direct.bootstrap, **options},
        lambda stream: stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)),
    )
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert sorted(value for batch in batches for value in batch) == numbered("a", 0, 25)
