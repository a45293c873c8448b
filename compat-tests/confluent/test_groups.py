"""Classic groups with librdkafka: eager and cooperative, static members, members and brokers that die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all
from harness.group_member_process import GroupMember
from harness.waiting import eventually

PARTITIONS = 6
SECONDS_MAX = 60
QUICK = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
MEMBER = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 300}
STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]

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
def join(group: str) -> Iterator[Join]:
    members: list[GroupMember] = []

    def start(broker: BrokerProcess, **settings: Any) -> GroupMember:
        member = GroupMember(broker.bootstrap, group, [group], **{**MEMBER, **settings})
        members.append(member)
        return member

    yield start
    for member in members:
        member.kill()


def await_shares(*members: GroupMember, partitions: int = PARTITIONS) -> None:
    """Every partition is with one member, and none has many more than another."""

    def shared() -> bool:
        held = [member.assignment or frozenset() for member in members]
        sizes = sorted(len(each) for each in held)
        whole = len(frozenset().union(*held)) == sum(sizes) == partitions
        return whole and sizes[-1] - sizes[0] <= 1

    eventually(shared, seconds_max=SECONDS_MAX, what="every partition with one member")


def await_read(topic: str, *members: GroupMember, count: int) -> Counter[tuple[str, int, int]]:
    def read() -> Counter[tuple[str, int, int]] | None:
        seen: Counter[tuple[str, int, int]] = Counter()
        for member in members:
            seen.update(member.read)
        return seen if len(seen) >= count else None

    found = eventually(read, seconds_max=SECONDS_MAX, what=f"{count} records of {topic}")
    assert found is not None
    return found


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    for partition in range(PARTITIONS):
        values: list[bytes | None] = [b"%d" % number for number in range(count // PARTITIONS)]
        produce_all(broker.bootstrap, topic, values, partition=partition)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_come_and_go_and_every_record_is_read(
    quick_broker: BrokerProcess, group: str, join: Join, strategy: str
) -> None:
    how = {"partition_assignment_strategy": strategy}
    one = join(quick_broker, **how)
    await_shares(one)
    two, three = join(quick_broker, **how), join(quick_broker, **how)
    await_shares(one, two, three)
    produce(quick_broker, group, 600)
    await_read(group, one, two, three, count=600)
    two.close()
    await_shares(one, three)
    three.kill()  # its session has to end first
    await_shares(one)
    produce(quick_broker, group, 600)
    await_read(group, one, two, three, count=1200)


def test_twenty_members_share_six_partitions(quick_broker: BrokerProcess, group: str) -> None:
    settings = {
        "bootstrap.servers": quick_broker.bootstrap,
        "group.id": group,
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 500,
    }
    members = [Consumer(settings) for _ in range(20)]
    try:
        for member in members:
            member.subscribe([group])

        def settled() -> bool:
            for member in members:
                member.poll(0.01)
            sizes = Counter(len(member.assignment()) for member in members)
            return sizes == {1: PARTITIONS, 0: 20 - PARTITIONS}

        eventually(settled, seconds_max=SECONDS_MAX, what="six members with one partition each")
    finally:
        for member in members:
            member.close()


def test_a_static_member_is_restarted_without_a_rebalance(quick_broker: BrokerProcess, group: str, join: Join) -> None:
    one = join(quick_broker, group_instance_id="one", session_timeout_ms=20_000)
    two = join(quick_broker, group_instance_id="two", session_timeout_ms=20_000)
    await_shares(one, two)
    before, generation = two.assignment, _generation(quick_broker, group)
    two.kill()
    again = join(quick_broker, group_instance_id="two", session_timeout_ms=20_000)
    eventually(lambda: again.assignment == before, seconds_max=SECONDS_MAX, what="its old assignment")
    assert _generation(quick_broker, group) == generation
    await_shares(one, again)


def _generation(broker: BrokerProcess, group: str) -> frozenset[Any]:
    """Who has what: that stands for the generation, which no admin API tells."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result()
    return frozenset(
        (member.group_instance_id, each.partition)
        for member in described.members
        for each in member.assignment.topic_partitions
    )


def test_a_second_instance_fences_the_first(quick_broker: BrokerProcess, group: str) -> None:
    settings = {
        "bootstrap.servers": quick_broker.bootstrap,
        "group.id": group,
        "group.instance.id": "only",
        "heartbeat.interval.ms": 200,
        "log_level": 0,
    }
    first, second = Consumer(settings), Consumer(settings)
    try:
        first.subscribe([group])
        eventually(lambda: first.poll(0.1) is None and first.assignment(), seconds_max=SECONDS_MAX)
        second.subscribe([group])
        eventually(lambda: second.poll(0.1) is None and second.assignment(), seconds_max=SECONDS_MAX)

        def fenced() -> bool:
            message = first.poll(0.1)
            return message is not None and message.error() is not None and message.error().code() == KafkaError._FATAL

        eventually(fenced, seconds_max=SECONDS_MAX, what="the first instance to be fenced")
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_a_restarted_broker_knows_members_and_offsets(
    new_broker: Callable[..., BrokerProcess], group: str, join: Join, clean: bool
) -> None:
    broker = new_broker(QUICK)
    create_topic(broker.bootstrap, group, partitions=PARTITIONS)
    one = join(broker, session_timeout_ms=20_000, reconnect_backoff_max_ms=200)
    two = join(broker, session_timeout_ms=20_000, reconnect_backoff_max_ms=200)
    await_shares(one, two)
    produce(broker, group, 600)
    await_read(group, one, two, count=600)
    before = one.assignment, two.assignment
    broker.restart(clean=clean)
    produce(broker, group, 600)
    seen = await_read(group, one, two, count=1200)
    assert (one.assignment, two.assignment) == before
    assert max(seen.values()) == 1, "records were read again although their offsets were committed"


def test_offsets_are_listed_altered_and_go_with_their_group(quick_broker: BrokerProcess, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(group, 0, 5), TopicPartition(group, 1, 7)])
    admin.alter_consumer_group_offsets([wanted])[group].result()
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    assert {(each.partition, each.offset) for each in listed.topic_partitions} == {(0, 5), (1, 7)}
    admin.delete_consumer_groups([group])[group].result()
    with pytest.raises(KafkaException) as caught:
        admin.delete_consumer_groups([group])[group].result()
    assert caught.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_an_active_group_can_neither_be_deleted_nor_reset(quick_broker: BrokerProcess, group: str, join: Join) -> None:
    await_shares(join(quick_broker))
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})
    with pytest.raises(KafkaException) as caught:
        admin.delete_consumer_groups([group])[group].result()
    assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(group, 0, 5)])
    altered = admin.alter_consumer_group_offsets([wanted])[group].result()
    assert altered.topic_partitions[0].error.code() == KafkaError.UNKNOWN_MEMBER_ID


def test_a_consumer_that_assigns_itself_commits_without_being_a_member(quick_broker: BrokerProcess, group: str) -> None:
    produce(quick_broker, group, 60)
    reader = Consumer({"bootstrap.servers": quick_broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        reader.assign([TopicPartition(group, 0, 0)])
        reader.commit(offsets=[TopicPartition(group, 0, 4, "with metadata")], asynchronous=False)
        [found] = reader.committed([TopicPartition(group, 0)], timeout=10)
        assert (found.offset, found.metadata) == (4, "with metadata")
    finally:
        reader.close()
