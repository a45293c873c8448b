"""A group reads a large topic while its members come, leave and are killed, and the broker is restarted and killed.

Every record must be seen. It may be seen again only if whoever saw it first was killed before its commit was confirmed:
all members commit when partitions are revoked and when they leave, so nothing else explains a second reading.

`GROUP_RECORDS=1000000 pytest compat-tests/groups` reads a million.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from groups.load import Load
from groups.members import Group, Member, read_again_after_commit, records, seen_by
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic
from harness.waiting import eventually

RECORDS = int(os.environ.get("GROUP_RECORDS", "150000"))
PARTITIONS = 12
SECONDS_MAX = 60
# Who is to be killed is missed soon; nobody else is, however busy the machine.
STEADY_MS, VICTIM_MS = 30_000, 4000
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture
def changing(new_broker: Callable[..., BrokerProcess], topic: str, tmp_path: Path) -> Iterator[Changing]:
    broker = new_broker(SETTINGS)
    create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    group = Group(broker.bootstrap, topic, tmp_path)
    load = Load(broker.bootstrap, topic, partitions=PARTITIONS, count=RECORDS, ledger=group.ledger)
    yield Changing(broker, topic, group, load)
    for member in group.members:
        member.discard()
    load.abort()


class Changing:
    """One group's life, change by change; between two changes it always gets on with its reading."""

    def __init__(self, broker: BrokerProcess, topic: str, group: Group, load: Load) -> None:
        self.broker = broker
        self._topic, self._group, self._load = topic, group, load

    def join(self, client: str, *, is_victim: bool = False, **settings: Any) -> Member:
        options = {key.replace("_", "."): value for key, value in settings.items()}
        return self._group.join(client, session_ms=VICTIM_MS if is_victim else STEADY_MS, settings=options)

    def await_reading(self, *members: Member) -> None:
        """All of them are members in earnest: each was assigned something and has read since."""
        before = [member.seen for member in members]
        eventually(
            lambda: all(member.seen > seen for member, seen in zip(members, before, strict=True)),
            seconds_max=SECONDS_MAX, what=f"every member reads; {self._group.describe()}",
        )  # fmt: skip

    def progress(self, *, part: float) -> None:
        """That part of all records more."""
        ledger = self._group.ledger
        goal = ledger.distinct + int(part * RECORDS)
        ledger.await_distinct(goal, seconds_max=SECONDS_MAX, describe=self._group.describe)

    def finish(self) -> None:
        self._load.finish()
        ledger = self._group.ledger
        ledger.await_distinct(self._load.sent, seconds_max=SECONDS_MAX, describe=self._group.describe)
        for member in self._group.members:
            if member.is_running:
                member.leave()
        self._check()

    def _check(self) -> None:
        members, shown = self._group.members, self._group.describe()
        per_partition = self._load.sent // PARTITIONS
        everything = set(records((number, 0, per_partition - 1) for number in range(PARTITIONS)))
        assert per_partition * PARTITIONS == self._load.sent >= RECORDS
        seen = seen_by(members)
        assert seen.keys() == everything, shown
        assert [member for member in members if member.at_risk and not member.was_killed] == [], shown
        confirmed = Counter(record for member in members for record in records(member.confirmed))
        assert max(confirmed.values()) == 1, shown
        assert read_again_after_commit(members) == [], shown
        assert self._committed() == dict.fromkeys(range(PARTITIONS), (per_partition, per_partition))
        print(f"{len(seen)} records, {len(members)} members, {seen.total() - len(seen)} read again after a kill")

    def _committed(self) -> dict[int, tuple[int, int]]:
        """Of each partition, the group's offset and the end."""
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": self._topic})
        try:
            partitions = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
            return {
                each.partition: (each.offset, reader.get_watermark_offsets(each, timeout=SECONDS_MAX)[1])
                for each in reader.committed(partitions, timeout=SECONDS_MAX)
            }
        finally:
            reader.close()


def test_members_of_four_clients_in_one_group(changing: Changing) -> None:
    """All with the range assignor: whoever leads has to read what the other clients wrote, and they what it assigns."""
    join, part = changing.join, 1 / 8
    java = join("java")
    confluent, kafka_python, aiokafka = join("confluent"), join("kafka-python"), join("aiokafka")
    changing.await_reading(java, confluent, kafka_python, aiokafka)

    doomed = [join(client, is_victim=True) for client in ("confluent", "kafka-python", "aiokafka")]
    changing.await_reading(*doomed)
    changing.progress(part=part)
    doomed[0].kill()
    changing.progress(part=part)
    changing.broker.restart(clean=True)
    changing.progress(part=part)

    confluent.leave()
    second_java = join("java", is_victim=True)
    changing.await_reading(java, second_java, kafka_python, aiokafka)
    for member in (*doomed[1:], second_java):
        member.kill()
    changing.progress(part=part)

    changing.await_reading(join("confluent"))
    kafka_python.leave()
    changing.progress(part=part)
    changing.broker.restart(clean=False)
    changing.progress(part=part)
    aiokafka.leave()
    changing.await_reading(join("aiokafka"), join("kafka-python"))
    java.leave()
    changing.progress(part=part)
    changing.finish()


@pytest.mark.parametrize(
    "settings",
    [
        {"partition_assignment_strategy": "range"},
        {"partition_assignment_strategy": "cooperative-sticky"},
        {"group_protocol": "consumer"},
    ],
    ids=["eager", "cooperative", "consumer protocol"],
)
def test_members_of_librdkafka_in_one_group(changing: Changing, settings: dict[str, str]) -> None:
    part = 1 / 8

    def join(*, is_victim: bool = False) -> Member:
        return changing.join("confluent", is_victim=is_victim, **settings)

    one, two = join(), join()
    changing.await_reading(one, two)
    victim, three = join(is_victim=True), join()
    changing.await_reading(victim, three)
    changing.progress(part=part)
    victim.kill()
    changing.progress(part=part)
    one.leave()
    changing.progress(part=part)
    changing.broker.restart(clean=True)
    changing.progress(part=part)
    victims = join(is_victim=True), join(is_victim=True)
    changing.await_reading(*victims)
    two.leave()
    four = join()
    changing.await_reading(four)
    victims[0].kill()
    changing.progress(part=part)
    changing.broker.restart(clean=False)
    changing.progress(part=part)
    victims[1].kill()
    five = join()
    changing.await_reading(five)
    three.leave()
    changing.progress(part=part)
    changing.finish()
