"""Groups that the broker assigns (KIP-848), with Java consumers as members, and what Kafka's tools see of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all
from harness.java import run_tool
from harness.verifiable_consumer import VerifiableConsumer
from harness.waiting import eventually

TOOLS = "org.apache.kafka.tools"
PARTITIONS = 6
SECONDS_MAX = 60
QUICK = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.session.timeout.ms": "4000",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}


Join = Callable[..., VerifiableConsumer]


@pytest.fixture(scope="module")
def quick_broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers(QUICK)


@pytest.fixture
def group(quick_broker: BrokerProcess, topic: str) -> str:
    create_topic(quick_broker.bootstrap, topic, partitions=PARTITIONS)
    return topic


@pytest.fixture
def join(quick_broker: BrokerProcess, group: str) -> Iterator[Join]:
    members: list[VerifiableConsumer] = []

    def start(protocol: str = "consumer", instance: str | None = None) -> VerifiableConsumer:
        options = ["--group-protocol", protocol]
        options += ["--group-instance-id", instance] if instance else []
        options += ["--session-timeout", "4000"] if protocol == "classic" else []
        members.append(VerifiableConsumer(quick_broker.bootstrap, group, *options))
        return members[-1]

    yield start
    for member in members:
        member.kill()


def await_shares(*members: VerifiableConsumer) -> None:
    def settled() -> bool:
        loads = [len(member.assignment) for member in members]
        held = Counter(number for member in members for number in member.assignment)
        return held == Counter(range(PARTITIONS)) and max(loads) - min(loads) <= 1

    eventually(settled, seconds_max=SECONDS_MAX, what=f"{[member.assignment for member in members]}")


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    for number in range(PARTITIONS):
        produce_all(broker.bootstrap, topic, [b"x"] * count, partition=number)


def await_read(*members: VerifiableConsumer, count: int) -> None:
    wanted = {(number, offset) for number in range(PARTITIONS) for offset in range(count)}
    eventually(lambda: wanted <= set().union(*(member.read for member in members)), seconds_max=SECONDS_MAX)


def described(broker: BrokerProcess, group: str, *what: str) -> list[list[str]]:
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    run = run_tool(command, "--bootstrap-server", broker.bootstrap, "--describe", "--group", group, *what)
    return [re.split(r"\s+", line.strip()) for line in run.checked().lines if line.startswith(group)]


def test_members_come_go_and_are_killed(quick_broker: BrokerProcess, group: str, join: Join) -> None:
    produce(quick_broker, group, 20)
    one, two, three = join(), join(), join()
    await_shares(one, two, three)
    await_read(one, two, three, count=20)
    one.kill()
    await_shares(two, three)
    two.close()
    await_shares(three)
    produce(quick_broker, group, 20)
    await_read(one, two, three, count=40)


def test_tools_see_the_group_as_it_is(quick_broker: BrokerProcess, group: str, join: Join) -> None:
    produce(quick_broker, group, 5)
    one, static = join(), join(instance="a")
    await_shares(one, static)
    await_read(one, static, count=5)
    (state,) = eventually(lambda: described(quick_broker, group, "--state"))
    assert state[-3:] == ["uniform", "Stable", "2"]
    members = described(quick_broker, group, "--members", "--verbose")
    shares = {f"{group}:{','.join(map(str, sorted(each.assignment)))}" for each in (one, static)}
    assert {row[-1] for row in members} == {row[-3] for row in members} == shares
    assert len({row[-2] for row in members} | {row[-4] for row in members}) == 1  # all are in the target's epoch
    offsets = described(quick_broker, group)
    assert sorted((row[2], row[3], row[5]) for row in offsets) == [(str(number), "5", "0") for number in range(6)]


@pytest.mark.parametrize("order", [("classic", "consumer"), ("consumer", "classic")], ids=["upgrade", "downgrade"])
def test_a_group_changes_over_member_by_member(
    quick_broker: BrokerProcess, group: str, join: Join, order: tuple[str, str]
) -> None:
    before, after = order
    produce(quick_broker, group, 10)
    one, two = join(before), join(before)
    await_shares(one, two)
    three = join(after)
    await_shares(one, two, three)
    one.close()
    await_shares(two, three)
    produce(quick_broker, group, 10)
    two.close()
    four = join(after)
    await_shares(three, four)
    produce(quick_broker, group, 10)
    await_read(one, two, three, four, count=30)


def test_kafkas_own_decoder_reads_what_is_written(quick_broker: BrokerProcess, group: str, join: Join) -> None:
    member = join()
    await_shares(member)
    member.close()
    files = ",".join(str(path) for path in quick_broker.data.rglob("__consumer_offsets-*/*.log") if path.stat().st_size)
    dump = run_tool(f"{TOOLS}.DumpLogSegments", "--offsets-decoder", "--files", files).checked()
    pattern = rf'key: {{"type":"(\d+)","data":{{"groupId":"{group}".*payload: (.*)'
    facts = [
        (int(kind), None if value == "<DELETE>" else json.loads(value)["data"])
        for kind, value in re.findall(pattern, dump.stdout)
    ]
    epochs = [value["epoch"] for kind, value in facts if kind == 3]
    assert epochs == sorted(set(epochs))
    assert [value["subscribedTopicNames"] for kind, value in facts if kind == 5 and value] == [[group]]
    assert max(value["assignmentEpoch"] for kind, value in facts if kind == 6) == epochs[-2]
    for kind, field in ((7, "topicPartitions"), (8, "assignedPartitions")):
        *_, (share,) = (value[field] for each, value in facts if each == kind and value)
        assert share["partitions"] == [*range(PARTITIONS)]
    assert [kind for kind, value in facts if value is None] == [8, 7, 5]
