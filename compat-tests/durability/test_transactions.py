"""Exactly once under kill -9: consume, transform, produce, with the broker killed every few seconds.

Several instances share the input as one group; each commits its offsets in the transactions of its output. An instance
that meets an error starts anew, as an application would, and so does one that stands still: librdkafka 2.16 may wait in
send_offsets_to_transaction for ever after its coordinator went away (it is told that the offsets' group was added, and
then neither asks for the group's coordinator nor sends the offsets). On a busy machine that happens to most instances.
The one left behind is a zombie, fenced by its successor. At the end each input is in the output once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from harness.broker_process import BrokerProcess
from harness.committed import committed_items
from harness.confluent_client import create_topic, producer, send_patiently

INSTANCES = 2
PARTITIONS = 4
RECORDS = 100_000
KILLS = 3
SECONDS_BETWEEN_KILLS = 2.0
SECONDS_MAX = 60
CALL_SECONDS = 5
SECONDS_STILL = 12  # longer than any turn takes: two may stand still one after the other, and be replaced in time
# Sessions of both protocols are as short: now and then librdkafka's consumer_group_metadata() does not return after a
# kill, and what the stuck member was assigned must go to others in time.
SESSION_MS = 6000
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
}
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 2}


class Instance:
    """One consume-transform-produce loop."""

    def __init__(self, broker: BrokerProcess, source: str, target: str, *, protocol: str, number: int) -> None:
        self._bootstrap = broker.bootstrap
        self._source, self._target, self._protocol = source, target, protocol
        self._name = f"{source}-instance-{number}"
        self.successor = lambda: Instance(broker, source, target, protocol=protocol, number=number)
        self.stop = threading.Event()
        self.moved = time.monotonic()
        self.failures = 0
        self.transactions = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                self._live()
            except KafkaException:
                self.failures += 1
                self.moved = time.monotonic()

    def _live(self) -> None:
        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap, "group.id": f"{self._source}-group",
                "group.protocol": self._protocol, "isolation.level": "read_committed",
                "enable.auto.commit": False, "auto.offset.reset": "earliest",
                "max.poll.interval.ms": 10_000,
                **({"session.timeout.ms": SESSION_MS} if self._protocol == "classic" else {}), **QUICK,
            }
        )  # fmt: skip
        sender = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": self._name, "linger.ms": 5, **QUICK}
        )
        try:
            sender.init_transactions(2 * CALL_SECONDS)
            reader.subscribe([self._source])
            while not self.stop.is_set():
                self._turn(reader, sender)
        finally:
            reader.close()

    @property
    def stands_still(self) -> bool:
        return time.monotonic() - self.moved > SECONDS_STILL

    def _turn(self, reader: Consumer, sender: Producer) -> None:
        self.moved = time.monotonic()
        messages = [each for each in reader.consume(500, 0.2) if not each.error()]
        if not messages:
            return
        sender.begin_transaction()
        try:
            for message in messages:
                sender.produce(self._target, message.value(), partition=message.partition())
            positions = [each for each in reader.position(reader.assignment()) if each.offset >= 0]
            sender.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), CALL_SECONDS)
            self._commit(sender)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                sender.abort_transaction(CALL_SECONDS)
            # What was read must be read again, from what is committed: the next consumer does. What is still open here,
            # because the offsets were not taken in time, is aborted when the next producer of the name begins: without
            # its offsets it must not be committed.
            raise

    def _commit(self, sender: Producer) -> None:
        try:
            sender.commit_transaction(CALL_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            sender.commit_transaction(CALL_SECONDS)
        self.transactions += 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_input_is_in_the_output_once(new_broker: Callable[..., BrokerProcess], topic: str, protocol: str) -> None:
    broker = new_broker(SETTINGS)
    target = f"{topic}-out"
    create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    create_topic(broker.bootstrap, target, partitions=PARTITIONS)
    sender = producer(broker.bootstrap, linger_ms=5)
    for number in range(RECORDS):
        send_patiently(sender, topic, b"%d" % number, partition=number % PARTITIONS)
    assert sender.flush(30) == 0
    instances = [Instance(broker, topic, target, protocol=protocol, number=number) for number in range(INSTANCES)]
    try:
        for _ in range(KILLS):
            time.sleep(SECONDS_BETWEEN_KILLS)  # the load between two kills, not a wait for something
            broker.restart(clean=False)
        with committed_items(broker.bootstrap, target, partitions=PARTITIONS, item=Message.value) as seen:
            seen.wait_for(RECORDS, seconds_max=SECONDS_MAX, meanwhile=lambda: replace_still_ones(instances))
            seen.assert_each_once(RECORDS)
    finally:
        for each in instances:
            each.stop.set()
        for each in instances:
            if not each.stands_still:
                each.thread.join(SECONDS_STILL)
    assert sum(each.transactions for each in instances) > KILLS


def replace_still_ones(instances: list[Instance]) -> None:
    for each in list(instances):
        if each.stands_still and not each.stop.is_set():
            each.stop.set()
            instances.append(each.successor())
