"""Classic groups with kafka-python."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from harness.broker_process import BrokerProcess
from harness.kafka_python_client import produce_all
from harness.waiting import eventually
from kafka import KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

PARTITIONS = 4
SECONDS_MAX = 60
QUICK = {
    "group.min.session.timeout.ms": "1000",
    # Long enough for both members to have their metadata: a leader that assigns without it joins again at once, and
    # kafka-python sometimes loses the answer then (see FINDINGS.md; the same happens with Apache Kafka).
    "group.initial.rebalance.delay.ms": "1000",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture(scope="module")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers(QUICK)


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Any:
    from kafka import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


class Member:
    """A consumer on a thread of its own, until it is told to leave."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self.read: list[bytes] = []
        self.assignment: set[TopicPartition] = set()
        self._leaving = threading.Event()
        self._options = {
            "bootstrap_servers": bootstrap,
            "group_id": topic,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 300,
            **settings,
        }
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = KafkaConsumer(self._topic, **self._options)
        while not self._leaving.is_set():
            for records in consumer.poll(timeout_ms=50).values():
                self.read += [record.value for record in records]
            self.assignment = set(consumer.assignment())
        consumer.close()  # commits, and leaves

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor],
    ids=["range", "roundrobin", "sticky"],
)
def test_members_share_the_partitions_and_read_everything_once(
    broker: BrokerProcess, make_topic: Callable[..., str], assignor: type[Any]
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    members = [Member(broker.bootstrap, topic, partition_assignment_strategy=[assignor]) for _ in range(2)]
    try:
        eventually(lambda: [len(each.assignment) for each in members] == [2, 2], seconds_max=SECONDS_MAX)
        for partition in range(PARTITIONS):
            produce_all(broker.bootstrap, topic, [b"%d" % partition] * 50, partition=partition)
        eventually(lambda: sum(len(each.read) for each in members) == 200, seconds_max=SECONDS_MAX)
        members[1].leave()
        eventually(lambda: len(members[0].assignment) == PARTITIONS, seconds_max=SECONDS_MAX)
        produce_all(broker.bootstrap, topic, [b"more"] * 50)
        eventually(lambda: len(members[0].read) + len(members[1].read) == 250, seconds_max=SECONDS_MAX)
    finally:
        for member in members:
            member.leave()


def test_offsets_are_committed_fetched_and_listed(broker: BrokerProcess, admin: Any, made: str) -> None:
    produce_all(broker.bootstrap, made, [b"x"] * 10)
    member = Member(broker.bootstrap, made)
    eventually(lambda: len(member.read) == 10, seconds_max=SECONDS_MAX)
    member.leave()
    offsets = admin.list_group_offsets(made)
    assert "10" in str(offsets)
