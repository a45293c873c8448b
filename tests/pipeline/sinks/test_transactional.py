"""One part, one transaction: whoever is killed, retried or forgotten, each part of each batch is written once."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

import tidemark
from tidemark.pipeline.cluster import Cluster
from tidemark.pipeline.sinks import transactional
from tidemark.pipeline.sinks.batches import Part, newest, partition_of
from tidemark.pipeline.sinks.transactional import (
    LeftOver,
    PartsDisagree,
    Row,
    Writing,
    fence_writers,
    write_part,
    writers_of_begun_batch,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tidemark.embedded(transaction_state_log_num_partitions=2, offsets_topic_num_partitions=2) as broker:
        yield Cluster(broker.bootstrap, {"linger.ms": "0"})


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"out-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=1)
    cluster.create_topic(f"{name}.batches", partitions=4)
    return name


def writing(
    cluster: Cluster, topic: str, *, batch: int = 0, writers: int = 1, run: str = "r1", query: str = "q1"
) -> Writing:
    return Writing(
        settings=cluster.settings,
        transactional_prefix=f"{topic}.{query}",
        batches_topic=f"{topic}.batches",
        run=run,
        query=query,
        batch=batch,
        writers=writers,
        transaction_timeout_s=30,
        rate=None,
        attempt_seconds_max=20,
    )


def rows(topic: str, *values: bytes) -> list[Row]:
    return [(topic, None, value, None, None) for value in values]


def committed(cluster: Cluster, topic: str) -> list[bytes | None]:
    from confluent_kafka import TopicPartition

    reader = cluster.consumer(**{"isolation.level": "read_committed", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := reader.poll(10)) is not None and not message.error():
        found.append(message.value())
    reader.close()
    return found


def test_a_part_is_written_with_the_record_of_its_batch(cluster: Cluster, topic: str) -> None:
    doing = writing(cluster, topic, batch=7)
    fence_writers(doing, known_writers=1)
    assert write_part(doing, 0, rows(topic, b"a", b"b")) == 2
    assert committed(cluster, topic) == [b"a", b"b"]
    assert newest(cluster.settings, doing.batches_topic, partition_of(0)) == Part(
        run="r1", query="q1", batch=7, writer=0, writers=1, rows=2
    )


def test_a_part_that_is_tried_again_writes_nothing(cluster: Cluster, topic: str) -> None:
    doing = writing(cluster, topic)
    fence_writers(doing, known_writers=1)
    assert [write_part(doing, 0, rows(topic, b"a")) for _ in range(3)] == [1, 0, 0]
    assert committed(cluster, topic) == [b"a"]


def test_a_batch_of_a_restarted_pipeline_is_written_once(cluster: Cluster, topic: str) -> None:
    for run in ("r1", "r2", "r3"):
        fence_writers(writing(cluster, topic, run=run), known_writers=1)
        write_part(writing(cluster, topic, run=run, batch=4), 0, rows(topic, b"a"))
    assert committed(cluster, topic) == [b"a"]


def test_a_writer_of_an_older_run_that_starts_late_writes_nothing(cluster: Cluster, topic: str) -> None:
    fence_writers(writing(cluster, topic, run="old"), known_writers=1)
    fence_writers(writing(cluster, topic, run="new"), known_writers=1)
    with pytest.raises(LeftOver):
        write_part(writing(cluster, topic, run="old"), 0, rows(topic, b"zombie"))
    assert write_part(writing(cluster, topic, run="new"), 0, rows(topic, b"a")) == 1
    assert committed(cluster, topic) == [b"a"]


def test_a_writer_that_is_in_the_middle_when_a_new_run_takes_over_cannot_commit(cluster: Cluster, topic: str) -> None:
    old = writing(cluster, topic, run="old")
    fence_writers(old, known_writers=1)

    def rows_with_a_takeover_between() -> Iterator[Row]:
        yield from rows(topic, b"zombie 1")
        fence_writers(writing(cluster, topic, run="new"), known_writers=1)
        yield from rows(topic, b"zombie 2")

    with pytest.raises(KafkaException):
        write_part(old, 0, rows_with_a_takeover_between())
    assert write_part(writing(cluster, topic, run="new"), 0, rows(topic, b"a")) == 1
    assert committed(cluster, topic) == [b"a"]


def test_of_two_attempts_at_one_part_only_one_commits(cluster: Cluster, topic: str) -> None:
    doing = writing(cluster, topic)
    fence_writers(doing, known_writers=1)

    def rows_with_another_attempt_between() -> Iterator[Row]:
        yield from rows(topic, b"first attempt")
        assert write_part(doing, 0, rows(topic, b"second attempt")) == 1

    with pytest.raises(KafkaException):
        write_part(doing, 0, rows_with_another_attempt_between())
    assert committed(cluster, topic) == [b"second attempt"]


def test_rows_that_fail_leave_nothing_to_see(cluster: Cluster, topic: str) -> None:
    doing = writing(cluster, topic)
    fence_writers(doing, known_writers=1)

    def failing() -> Iterator[Row]:
        yield from rows(topic, b"a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_part(doing, 0, failing())
    assert committed(cluster, topic) == []
    assert write_part(doing, 0, rows(topic, b"a")) == 1


def test_a_new_checkpoint_starts_counting_anew(cluster: Cluster, topic: str) -> None:
    fence_writers(writing(cluster, topic), known_writers=1)
    write_part(writing(cluster, topic, batch=57), 0, rows(topic, b"a"))
    fence_writers(writing(cluster, topic, query="q2"), known_writers=1)
    assert write_part(writing(cluster, topic, batch=0, query="q2"), 0, rows(topic, b"b")) == 1


def test_a_batch_begun_by_other_writers_is_finished_by_as_many(cluster: Cluster, topic: str) -> None:
    two = writing(cluster, topic, batch=3, writers=2)
    fence_writers(two, known_writers=2)
    write_part(two, 1, rows(topic, b"a"))
    three = writing(cluster, topic, batch=3, writers=3, run="r2")
    fence_writers(three, known_writers=3)
    assert writers_of_begun_batch(three, known_writers=3) == 2
    with pytest.raises(PartsDisagree):
        write_part(three, 1, rows(topic, b"a"))
    assert writers_of_begun_batch(writing(cluster, topic, batch=4, writers=3, run="r2"), known_writers=3) is None


def test_an_empty_part_talks_to_nobody() -> None:
    nowhere = Cluster("127.0.0.1:1", {})
    assert write_part(writing(nowhere, "t"), 0, []) == 0


def test_the_newest_record_is_found_behind_many_aborted_ones(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doing = writing(cluster, topic, batch=5)
    fence_writers(doing, known_writers=1)
    write_part(doing, 0, rows(topic, b"a"))
    producer = transactional._producer(doing, 0)
    producer.init_transactions()
    for _ in range(10):
        producer.begin_transaction()
        producer.produce(doing.batches_topic, b"{}", b"writer-0", partition=partition_of(0))
        producer.flush()
        producer.abort_transaction()
    monkeypatch.setattr("tidemark.pipeline.sinks.batches.LOOK_BACK_RECORDS", 2)
    found = newest(cluster.settings, doing.batches_topic, partition_of(0))
    assert isinstance(found, Part)
    assert found.batch == 5
