"""Groups that the broker assigns (KIP-848), with librdkafka's `group.protocol=consumer`, and the way there and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all
from harness.group_member_process import GroupMember
from harness.waiting import eventually

PARTITIONS = 12
SECONDS_MAX = 40
QUICK = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
CLASSIC = {"partition_assignment_strategy": "range", "session_timeout_ms": 3000, "heartbeat_interval_ms": 300}

Join = Callable[..., GroupMember]


@pytest.fixture(scope="module")
def quick_broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers(QUICK)


@pytest.fixture
def group(quick_broker: BrokerProcess, topic: str) -> str:
    """The name of a topic, and of the group that reads it."""
    create_topic(quick_broker.bootstrap, topic, partitions=PARTITIONS)
    return topic


@pytest.fixture
def join(quick_broker: BrokerProcess, group: str) -> Iterator[Join]:
    members: list[GroupMember] = []

    def start(topics: list[str] | None = None, **settings: Any) -> GroupMember:
        if not settings.keys() & CLASSIC.keys():
            settings = {"group_protocol": "consumer", **settings}
        member = GroupMember(quick_broker.bootstrap, group, topics or [group], **settings)
        members.append(member)
        return member

    yield start
    for member in members:
        member.kill()


def await_shares(*members: GroupMember, sizes: dict[str, int], idle: int = 0) -> None:
    """Every partition is with exactly one member, and shares differ by one at most."""
    wanted = Counter((topic, number) for topic, count in sizes.items() for number in range(count))

    def settled() -> bool:
        shares = [member.assignment for member in members]
        if any(share is None for share in shares):
            return False
        found = Counter(partition for share in shares for partition in share or ())
        loads = [len(share or ()) for share in shares]
        return found == wanted and loads.count(0) == idle and max(loads) - min(loads) <= 1

    eventually(settled, seconds_max=SECONDS_MAX, what=f"{len(members)} members share {sizes}")


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    for number in range(PARTITIONS):
        produce_all(broker.bootstrap, topic, [b"x"] * count, partition=number)


def await_read(*members: GroupMember, topic: str, count: int) -> Counter[tuple[str, int, int]]:
    """Everything was read and committed by one of them; what was read and not committed may come again."""
    wanted = {(topic, number, offset) for number in range(PARTITIONS) for offset in range(count)}

    def done() -> Counter[tuple[str, int, int]] | None:
        read: Counter[tuple[str, int, int]] = sum((member.read for member in members), Counter())
        return read if set(read) == wanted else None

    return eventually(done, seconds_max=SECONDS_MAX, what="everything is read") or Counter()


@pytest.mark.parametrize("size", [1, 3, 20])
def test_members_share_all_partitions_and_read_every_record_once(quick_broker, group, join, size):
    produce(quick_broker, group, 50)
    members = [join() for _ in range(size)]
    await_shares(*members, sizes={group: PARTITIONS}, idle=max(0, size - PARTITIONS))
    read = await_read(*members, topic=group, count=50)
    assert max(read.values()) == 1


def test_a_killed_members_partitions_go_to_the_others_when_its_session_ends(quick_broker, group, join):
    members = [join() for _ in range(3)]
    await_shares(*members, sizes={group: PARTITIONS})
    members[0].kill()
    await_shares(*members[1:], sizes={group: PARTITIONS})
    produce(quick_broker, group, 20)
    await_read(*members, topic=group, count=20)


def test_a_rolling_restart_loses_and_repeats_nothing(quick_broker, group, join):
    members = [join() for _ in range(3)]
    all_members = list(members)
    await_shares(*members, sizes={group: PARTITIONS})
    for position in range(3):
        produce(quick_broker, group, 10)
        members[position].close()
        members[position] = join()
        all_members.append(members[position])
        await_shares(*members, sizes={group: PARTITIONS})
    read = await_read(*all_members, topic=group, count=30)
    assert max(read.values()) == 1


def test_a_static_member_that_restarts_finds_its_partitions_again(quick_broker, group, join):
    other, static = join(), join(group_instance_id="one")
    await_shares(other, static, sizes={group: PARTITIONS})
    share, rest = static.assignment, other.assignment
    static.close()
    again = join(group_instance_id="one")
    await_shares(other, again, sizes={group: PARTITIONS})
    assert (again.assignment, other.assignment) == (share, rest)


def test_new_partitions_and_new_topics_of_an_expression_are_picked_up(quick_broker, group, join):
    member = join([f"^{group}.*"])
    await_shares(member, sizes={group: PARTITIONS})
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})
    admin.create_partitions([NewPartitions(group, PARTITIONS + 3)])[group].result(10)
    await_shares(member, sizes={group: PARTITIONS + 3})
    create_topic(quick_broker.bootstrap, f"{group}-more", partitions=2)
    # Kafka looks for new topics of expressions every ten seconds at most.
    await_shares(member, sizes={group: PARTITIONS + 3, f"{group}-more": 2})


def test_a_group_is_upgraded_and_downgraded_member_by_member(quick_broker, group, join):
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})

    def kind() -> str:
        listed = admin.list_consumer_groups().result(10).valid
        return next(each.type.name for each in listed if each.group_id == group)

    old, older = join(**CLASSIC), join(**CLASSIC)
    all_members = [old, older]
    await_shares(*all_members, sizes={group: PARTITIONS})
    assert kind() == "CLASSIC"
    new = join()
    await_shares(old, older, new, sizes={group: PARTITIONS})
    assert kind() == "CONSUMER"
    produce(quick_broker, group, 10)
    old.close()
    older.close()
    newer = join()
    await_shares(new, newer, sizes={group: PARTITIONS})
    produce(quick_broker, group, 10)
    back = join(**CLASSIC)
    await_shares(new, newer, back, sizes={group: PARTITIONS})
    new.close()
    newer.close()
    await_shares(back, sizes={group: PARTITIONS})
    assert kind() == "CLASSIC"
    produce(quick_broker, group, 10)
    read = await_read(old, older, new, newer, back, topic=group, count=30)
    assert max(read.values()) == 1


def test_a_group_outlives_a_broker_that_is_killed(new_broker, topic):
    broker = new_broker(QUICK)
    create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    members = [GroupMember(broker.bootstrap, topic, [topic], group_protocol="consumer") for _ in range(3)]
    try:
        await_shares(*members, sizes={topic: PARTITIONS})
        produce(broker, topic, 10)
        await_read(*members, topic=topic, count=10)
        shares = [member.assignment for member in members]
        broker.kill()
        broker.start()
        produce(broker, topic, 10)
        read = await_read(*members, topic=topic, count=20)
        assert max(read.values()) == 1
        assert [member.assignment for member in members] == shares
    finally:
        for member in members:
            member.kill()
