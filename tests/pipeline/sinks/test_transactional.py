"""One part, one transaction: whoever is killed, retried or forgotten, each part of each batch is written once."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException

import tidemark
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.sinks import transactional
from tidemark.pipeline.sinks.batches import CheckpointMismatch, Part, PartsDisagree, newest, partition_of
from tidemark.pipeline.sinks.transactional import (
    KeptWriters,
    LeftOver,
    Row,
    TransactionTooSlow,
    Writing,
    begun_batch,
    end_attempts,
    fence_writers,
    write_part,
)

QUICK = {
    "transaction_state_log_num_partitions": 2,
    "offsets_topic_num_partitions": 2,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 200,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterAdmin]:
    with tidemark.embedded(**QUICK) as broker:  # type: ignore[arg-type]
        yield ClusterAdmin(broker.bootstrap, {"linger.ms": "0"})


@pytest.fixture
def topic(cluster: ClusterAdmin) -> str:
    name = f"out-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=1)
    cluster.create_topic(f"{name}.batches", partitions=4)
    return name


def writing(
    cluster: ClusterAdmin, topic: str, *, batch: int = 0, writers: int = 1, run: str = "r1", query: str = "q1"
) -> Writing:
    return Writing(
        settings=cluster.settings,
        transactional_prefix=topic,
        batches_topic=f"{topic}.batches",
        run=run,
        query=query,
        batch=batch,
        writers=writers,
        transaction_timeout_s=30,
        rate=None,
        attempt_seconds_max=20,
    )


def read_up_to(doing: Writing, offset: int) -> Writing:
    return replace(doing, ends={"orders": {"0": offset}})


def rows(topic: str, *values: bytes) -> list[Row]:
    return [(topic, None, value, None, None) for value in values]


def committed(cluster: ClusterAdmin, topic: str) -> list[bytes | None]:
    from confluent_kafka import TopicPartition

    reader = cluster.consumer(**{"isolation.level": "read_committed", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := reader.poll(10)) is not None and not message.error():
        found.append(message.value())
    reader.close()
    return found


def test_a_part_is_written_with_the_record_of_its_batch(cluster: ClusterAdmin, topic: str) -> None:
    doing = writing(cluster, topic, batch=7)
    fence_writers(doing, known_writers=1)
    assert write_part(doing, 0, rows(topic, b"a", b"b")) == 2
    assert committed(cluster, topic) == [b"a", b"b"]
    assert newest(cluster.settings, doing.batches_topic, partition_of(0)) == Part(
        run="r1", query="q1", batch=7, writer=0, writers=1, rows=2
    )


def test_a_part_that_is_tried_again_writes_nothing(cluster: ClusterAdmin, topic: str) -> None:
    doing = writing(cluster, topic)
    fence_writers(doing, known_writers=1)
    assert [write_part(doing, 0, rows(topic, b"a")) for _ in range(3)] == [1, 0, 0]
    assert committed(cluster, topic) == [b"a"]


def test_a_batch_of_a_restarted_pipeline_is_written_once(cluster: ClusterAdmin, topic: str) -> None:
    for run in ("r1", "r2", "r3"):
        fence_writers(writing(cluster, topic, run=run), known_writers=1)
        write_part(writing(cluster, topic, run=run, batch=4), 0, rows(topic, b"a"))
    assert committed(cluster, topic) == [b"a"]


def test_a_writer_of_an_older_run_that_starts_late_writes_nothing(cluster: ClusterAdmin, topic: str) -> None:
    fence_writers(writing(cluster, topic, run="old"), known_writers=1)
    fence_writers(writing(cluster, topic, run="new"), known_writers=1)
    with pytest.raises(LeftOver):
        write_part(writing(cluster, topic, run="old"), 0, rows(topic, b"zombie"))
    assert write_part(writing(cluster, topic, run="new"), 0, rows(topic, b"a")) == 1
    assert committed(cluster, topic) == [b"a"]


def test_a_writer_that_is_in_the_middle_when_a_new_run_takes_over_cannot_commit(
    cluster: ClusterAdmin, topic: str
) -> None:
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


def test_of_two_attempts_at_one_part_only_one_commits(cluster: ClusterAdmin, topic: str) -> None:
    doing = writing(cluster, topic)
    fence_writers(doing, known_writers=1)

    def rows_with_another_attempt_between() -> Iterator[Row]:
        yield from rows(topic, b"first attempt")
        assert write_part(doing, 0, rows(topic, b"second attempt")) == 1

    with pytest.raises(KafkaException):
        write_part(doing, 0, rows_with_another_attempt_between())
    assert committed(cluster, topic) == [b"second attempt"]


def test_rows_that_fail_leave_nothing_to_see(cluster: ClusterAdmin, topic: str) -> None:
    doing = writing(cluster, topic)
    fence_writers(doing, known_writers=1)

    def failing() -> Iterator[Row]:
        yield from rows(topic, b"a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_part(doing, 0, failing())
    assert committed(cluster, topic) == []
    assert write_part(doing, 0, rows(topic, b"a")) == 1


def test_a_new_checkpoint_starts_counting_anew(cluster: ClusterAdmin, topic: str) -> None:
    fence_writers(writing(cluster, topic), known_writers=1)
    write_part(writing(cluster, topic, batch=57), 0, rows(topic, b"a"))
    fence_writers(writing(cluster, topic, query="q2"), known_writers=1)
    assert write_part(writing(cluster, topic, batch=0, query="q2"), 0, rows(topic, b"b")) == 1


def test_a_restored_checkpoint_is_refused_with_where_to_go_on(cluster: ClusterAdmin, topic: str) -> None:
    """Batches 0 to 2 were written; the checkpoint was copied after batch 0, and knows nothing of the others."""
    for batch in range(3):
        doing = read_up_to(writing(cluster, topic, batch=batch), 1000 * (batch + 1))
        fence_writers(doing, known_writers=1)
        write_part(doing, 0, rows(topic, b"%d" % batch))
    restored = read_up_to(writing(cluster, topic, batch=1, run="r2"), 5000)
    fence_writers(restored, known_writers=1)
    for attempt in (lambda: begun_batch(restored, known_writers=1), lambda: write_part(restored, 0, rows(topic, b"x"))):
        with pytest.raises(CheckpointMismatch, match=r"'start: \{offsets: \{orders: \{0: 3000\}\}\}'"):
            attempt()
    assert committed(cluster, topic) == [b"0", b"1", b"2"]


def test_the_same_batch_number_over_other_records_is_refused(cluster: ClusterAdmin, topic: str) -> None:
    fence_writers(writing(cluster, topic), known_writers=1)
    write_part(read_up_to(writing(cluster, topic, batch=2), 3000), 0, rows(topic, b"a"))
    again = writing(cluster, topic, batch=2, run="r2")
    fence_writers(again, known_writers=1)
    with pytest.raises(CheckpointMismatch):
        write_part(read_up_to(again, 3500), 0, rows(topic, b"b"))
    assert write_part(read_up_to(again, 3000), 0, rows(topic, b"a")) == 0
    assert committed(cluster, topic) == [b"a"]


def test_a_second_checkpoint_of_the_pipeline_fences_the_firsts_open_transaction(
    cluster: ClusterAdmin, topic: str
) -> None:
    first = writing(cluster, topic, run="r1", query="q1")
    fence_writers(first, known_writers=1)

    def rows_with_a_second_checkpoint_between() -> Iterator[Row]:
        yield from rows(topic, b"first")
        fence_writers(writing(cluster, topic, run="r2", query="q2"), known_writers=1)

    with pytest.raises(KafkaException):
        write_part(first, 0, rows_with_a_second_checkpoint_between())
    assert committed(cluster, topic) == []


def test_a_transaction_whose_time_is_over_says_so_and_the_next_attempt_has_more(
    cluster: ClusterAdmin, topic: str
) -> None:
    doing = replace(writing(cluster, topic), transaction_timeout_s=1.0)
    fence_writers(doing, known_writers=1)

    def rows_until_the_broker_aborts() -> Iterator[Row]:
        yield from rows(topic, b"a")
        eventually_aborted(cluster, topic)
        yield from rows(topic, b"b")

    with pytest.raises(TransactionTooSlow, match=r"Batch 0 is too large for one transaction: .* may last 1 s"):
        write_part(doing, 0, rows_until_the_broker_aborts())
    assert write_part(doing, 0, rows(topic, b"a", b"b"), attempt=1) == 2
    assert committed(cluster, topic) == [b"a", b"b"]


def eventually_aborted(cluster: ClusterAdmin, topic: str) -> None:
    """Until no transaction is open in the topic: then its last stable offset is its end."""
    deadline = time.monotonic() + 60
    while cluster.ranges([(topic, 0)])[topic, 0][1] in (0, cluster.ends([(topic, 0)])[topic, 0] + 1):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_when_all_attempts_are_ended_nothing_more_commits_and_another_run_is_left_alone(
    cluster: ClusterAdmin, topic: str
) -> None:
    first = writing(cluster, topic, run="r1")
    fence_writers(first, known_writers=1)

    def rows_with_an_end_between() -> Iterator[Row]:
        yield from rows(topic, b"a")
        end_attempts(first, known_writers=1)

    with pytest.raises(KafkaException):
        write_part(first, 0, rows_with_an_end_between())
    second = writing(cluster, topic, run="r2")
    fence_writers(second, known_writers=1)
    with pytest.raises(LeftOver):
        end_attempts(first, known_writers=1)
    assert write_part(second, 0, rows(topic, b"b")) == 1
    assert committed(cluster, topic) == [b"b"]


def test_a_batch_begun_by_other_writers_is_finished_by_as_many(cluster: ClusterAdmin, topic: str) -> None:
    two = writing(cluster, topic, batch=3, writers=2)
    fence_writers(two, known_writers=2)
    write_part(two, 1, rows(topic, b"a"))
    three = writing(cluster, topic, batch=3, writers=3, run="r2")
    fence_writers(three, known_writers=3)
    begun = begun_batch(three, known_writers=3)
    assert begun is not None
    assert begun.writers == 2
    with pytest.raises(PartsDisagree):
        write_part(three, 1, rows(topic, b"a"))
    assert begun_batch(writing(cluster, topic, batch=4, writers=3, run="r2"), known_writers=3) is None


def test_an_empty_part_talks_to_nobody() -> None:
    nowhere = ClusterAdmin("127.0.0.1:1", {})
    assert write_part(writing(nowhere, "t"), 0, []) == 0


def test_the_newest_record_is_found_behind_many_aborted_ones(
    cluster: ClusterAdmin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doing = writing(cluster, topic, batch=5)
    fence_writers(doing, known_writers=1)
    write_part(doing, 0, rows(topic, b"a"))
    producer = transactional._producer(doing, 0, 30)
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


class Started:
    """Counts the producers that are started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = transactional._producer

        def counted(doing: Writing, writer: int | None, timeout_s: float) -> object:
            self.count += 1
            return real(doing, writer, timeout_s)

        monkeypatch.setattr(transactional, "_producer", counted)


def test_a_process_writes_batch_after_batch_with_one_producer(
    cluster: ClusterAdmin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence_writers(writing(cluster, topic), known_writers=1)
    started, kept = Started(monkeypatch), KeptWriters()
    for batch, value in enumerate((b"a", b"b", b"c")):
        doing = replace(writing(cluster, topic, batch=batch), previous={0: batch - 1} if batch else {})
        assert write_part(doing, 0, rows(topic, value), kept=kept) == 1
    assert started.count == 1
    assert write_part(writing(cluster, topic, batch=2), 0, rows(topic, b"c"), kept=kept) == 0  # a stage run again
    assert write_part(writing(cluster, topic, batch=2), 0, rows(topic, b"c"), attempt=1, kept=kept) == 0
    assert committed(cluster, topic) == [b"a", b"b", b"c"]
    assert started.count == 3


def test_a_process_that_another_has_fenced_begins_anew_and_does_not_fail(cluster: ClusterAdmin, topic: str) -> None:
    """Spark gives a writer's parts to whichever process is idle, so two of them may take turns."""
    fence_writers(writing(cluster, topic), known_writers=1)
    here, there = KeptWriters(), KeptWriters()
    for batch, (value, kept) in enumerate(((b"a", here), (b"b", there), (b"c", here), (b"d", there))):
        doing = replace(writing(cluster, topic, batch=batch), previous={0: batch - 1} if batch else {})
        assert write_part(doing, 0, rows(topic, value), kept=kept) == 1
    assert committed(cluster, topic) == [b"a", b"b", b"c", b"d"]


def test_a_kept_producer_cannot_commit_what_another_process_has_written(cluster: ClusterAdmin, topic: str) -> None:
    fence_writers(writing(cluster, topic), known_writers=1)
    here, there = KeptWriters(), KeptWriters()
    write_part(writing(cluster, topic, batch=0), 0, rows(topic, b"a"), kept=here)
    assert write_part(writing(cluster, topic, batch=1), 0, rows(topic, b"b"), kept=there) == 1
    with pytest.raises(KafkaException):
        write_part(replace(writing(cluster, topic, batch=1), previous={0: 0}), 0, rows(topic, b"b"), kept=here)
    assert write_part(writing(cluster, topic, batch=1), 0, rows(topic, b"b"), attempt=1, kept=here) == 0
    assert write_part(writing(cluster, topic, batch=2), 0, rows(topic, b"c"), kept=here) == 1
    assert committed(cluster, topic) == [b"a", b"b", b"c"]


def test_a_kept_producer_of_an_older_run_cannot_commit(cluster: ClusterAdmin, topic: str) -> None:
    fence_writers(writing(cluster, topic, run="old"), known_writers=1)
    kept = KeptWriters()
    write_part(writing(cluster, topic, run="old", batch=0), 0, rows(topic, b"a"), kept=kept)
    fence_writers(writing(cluster, topic, run="new"), known_writers=1)
    doing = replace(writing(cluster, topic, run="old", batch=1), previous={0: 0})
    with pytest.raises(KafkaException):
        write_part(doing, 0, rows(topic, b"zombie"), kept=kept)
    with pytest.raises(LeftOver):
        write_part(writing(cluster, topic, run="old", batch=1), 0, rows(topic, b"zombie"), attempt=1, kept=kept)
    assert write_part(writing(cluster, topic, run="new", batch=1), 0, rows(topic, b"b"), kept=kept) == 1
    assert committed(cluster, topic) == [b"a", b"b"]
