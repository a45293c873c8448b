"""Transactions with librdkafka: commit, abort, isolation, fencing, time-outs, offsets; a large one, many small ones."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all, producer, read, send_patiently

SECONDS_MAX = 30
MILLION = 1_000_000


def transactional(bootstrap: str, name: str | None = None, **settings: Any) -> Producer:
    sender = producer(bootstrap, transactional_id=name or f"t-{uuid.uuid4().hex[:8]}", **settings)
    sender.init_transactions(SECONDS_MAX)
    return sender


def write(sender: Producer, topic: str, *values: bytes, commit: bool, partition: int = 0) -> None:
    sender.begin_transaction()
    for value in values:
        sender.produce(topic, value, partition=partition)
    if commit:
        sender.commit_transaction(SECONDS_MAX)
    else:
        sender.flush(SECONDS_MAX)  # or librdkafka would not send what it is about to abort
        sender.abort_transaction(SECONDS_MAX)


def reader_of(bootstrap: str, isolation: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{uuid.uuid4().hex[:8]}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            **settings,
        }
    )


def everything(bootstrap: str, topic: str, isolation: str, *, partitions: int = 1) -> list[bytes]:
    """Up to the end, as far as this isolation level goes."""
    reader = reader_of(bootstrap, isolation)
    reader.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    values, ended = [], 0
    while ended < partitions:
        message = reader.poll(SECONDS_MAX)
        assert message is not None, "neither a record nor the end in time"
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1
        else:
            values.append(message.value())
    reader.close()
    return values


def test_committed_records_are_seen_and_aborted_ones_are_not(broker: BrokerProcess, made: str) -> None:
    sender = transactional(broker.bootstrap)
    write(sender, made, b"1", b"2", commit=True)
    write(sender, made, b"3", b"4", commit=False)
    write(sender, made, b"5", commit=True)
    assert everything(broker.bootstrap, made, "read_committed") == [b"1", b"2", b"5"]
    assert everything(broker.bootstrap, made, "read_uncommitted") == [b"1", b"2", b"3", b"4", b"5"]


def test_an_open_transaction_holds_up_read_committed_consumers(broker: BrokerProcess, made: str) -> None:
    sender = transactional(broker.bootstrap)
    sender.begin_transaction()
    sender.produce(made, b"open", partition=0)
    sender.flush(SECONDS_MAX)
    produce_all(broker.bootstrap, made, [b"behind"])
    assert everything(broker.bootstrap, made, "read_committed") == []
    assert everything(broker.bootstrap, made, "read_uncommitted") == [b"open", b"behind"]
    sender.commit_transaction(SECONDS_MAX)
    assert everything(broker.bootstrap, made, "read_committed") == [b"open", b"behind"]


def test_a_second_producer_with_the_same_id_fences_the_first(broker: BrokerProcess, made: str) -> None:
    name = f"fence-{uuid.uuid4().hex[:8]}"
    first = transactional(broker.bootstrap, name)
    first.begin_transaction()
    first.produce(made, b"lost", partition=0)
    first.flush(SECONDS_MAX)
    second = transactional(broker.bootstrap, name)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(SECONDS_MAX)
    assert refused.value.args[0].fatal()
    write(second, made, b"kept", commit=True)
    assert everything(broker.bootstrap, made, "read_committed") == [b"kept"]


def test_a_transaction_that_takes_too_long_is_aborted(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = new_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})
    create_topic(broker.bootstrap, topic)
    sender = transactional(broker.bootstrap, transaction_timeout_ms=1000)
    sender.begin_transaction()
    sender.produce(topic, b"late", partition=0)
    sender.flush(SECONDS_MAX)
    reader = reader_of(broker.bootstrap, "read_committed", **{"enable.partition.eof": False})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    produce_all(broker.bootstrap, topic, [b"behind"])
    assert [message.value() for message in read(reader, 1)] == [b"behind"]  # when the other one is out of the way
    reader.close()
    with pytest.raises(KafkaException):
        sender.commit_transaction(SECONDS_MAX)


def test_a_time_out_above_the_limit_is_refused(broker: BrokerProcess) -> None:
    sender = producer(broker.bootstrap, transactional_id="long", transaction_timeout_ms=900_001)
    with pytest.raises(KafkaException) as refused:
        sender.init_transactions(SECONDS_MAX)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_move_with_the_transaction(
    broker: BrokerProcess, make_topic: Callable[..., str], protocol: str
) -> None:
    source = make_topic(partitions=2)
    target = f"{source}-out"
    create_topic(broker.bootstrap, target)
    for partition in range(2):
        produce_all(broker.bootstrap, source, [b"%d" % each for each in range(100)], partition=partition)
    settings: dict[str, Any] = {"group.protocol": protocol, "enable.partition.eof": False}
    reader = reader_of(broker.bootstrap, "read_committed", **settings)
    reader.subscribe([source])
    sender = transactional(broker.bootstrap)
    done = rounds = 0
    while done < 200:
        messages = [each for each in reader.consume(50, 5) if not each.error()]
        if not messages:
            continue
        rounds += 1
        sender.begin_transaction()
        for message in messages:
            sender.produce(target, message.value(), partition=0)
        sender.send_offsets_to_transaction(
            reader.position(reader.assignment()), reader.consumer_group_metadata(), SECONDS_MAX
        )
        if rounds % 2:
            sender.flush(SECONDS_MAX)
            sender.abort_transaction(SECONDS_MAX)
            for where in reader.committed(reader.assignment(), SECONDS_MAX):
                reader.seek(where if where.offset >= 0 else TopicPartition(source, where.partition, 0))
        else:
            sender.commit_transaction(SECONDS_MAX)
            done += len(messages)
    wanted = [TopicPartition(source, partition) for partition in range(2)]
    assert [each.offset for each in reader.committed(wanted, SECONDS_MAX)] == [100, 100]
    reader.close()
    seen = everything(broker.bootstrap, target, "read_committed")
    assert sorted(map(int, seen)) == sorted([*range(100), *range(100)])


def test_a_million_records_in_one_transaction(broker: BrokerProcess, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=2)
    sender = transactional(broker.bootstrap, linger_ms=20, queue_buffering_max_messages=MILLION)
    sender.begin_transaction()
    for number in range(MILLION):
        send_patiently(sender, topic, b"%d" % number, partition=number & 1)
    sender.commit_transaction(60)
    reader = reader_of(broker.bootstrap, "read_committed", **{"enable.partition.eof": False})
    reader.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(2)])
    seen = {message.value() for message in read(reader, MILLION, seconds_max=60)}
    reader.close()
    assert len(seen) == MILLION


def test_many_small_transactions(broker: BrokerProcess, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=4)
    sender = transactional(broker.bootstrap, linger_ms=0)
    kept = []
    for number in range(300):
        commit = number % 10 != 9
        sender.begin_transaction()
        for partition in range(4):
            value = b"%d-%d" % (number, partition)
            sender.produce(topic, value, partition=partition)
            kept += [value] if commit else []
        if commit:
            sender.commit_transaction(SECONDS_MAX)
        else:
            sender.flush(SECONDS_MAX)
            sender.abort_transaction(SECONDS_MAX)
    assert sorted(everything(broker.bootstrap, topic, "read_committed", partitions=4)) == sorted(kept)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_an_open_transaction_survives_a_restart(
    new_broker: Callable[..., BrokerProcess], topic: str, clean: bool
) -> None:
    broker = new_broker()
    create_topic(broker.bootstrap, topic, partitions=2)
    sender = transactional(broker.bootstrap)
    write(sender, topic, b"before", commit=True)
    write(sender, topic, b"aborted", commit=False)
    sender.begin_transaction()
    sender.produce(topic, b"open", partition=0)
    sender.flush(SECONDS_MAX)
    broker.restart(clean=clean)
    sender.produce(topic, b"later", partition=1)
    sender.commit_transaction(SECONDS_MAX)
    seen = everything(broker.bootstrap, topic, "read_committed", partitions=2)
    assert sorted(seen) == [b"before", b"later", b"open"]
