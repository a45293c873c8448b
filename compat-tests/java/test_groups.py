"""Classic groups with Java consumers of every assignor, and Apache Kafka's tools to look after them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all
from harness.java import ToolRun, run_tool
from harness.verifiable_consumer import VerifiableConsumer
from harness.waiting import eventually

TOOLS = "org.apache.kafka.tools"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CLIENTS = "org.apache.kafka.clients.consumer"
PARTITIONS = 6
SECONDS_MAX = 90
QUICK = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}


Join = Callable[[str], VerifiableConsumer]


@pytest.fixture(scope="module")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers(QUICK)


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> str:
    """The name of a topic with 600 records, and of the group that reads it."""
    create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        produce_all(broker.bootstrap, topic, [b"%d" % number for number in range(100)], partition=partition)
    return topic


@pytest.fixture
def join(broker: BrokerProcess, group: str) -> Iterator[Join]:
    members: list[VerifiableConsumer] = []

    def start(assignor: str) -> VerifiableConsumer:
        options = ["--group-protocol", "classic", "--session-timeout", "6000"]
        options += ["--assignment-strategy", f"{CLIENTS}.{assignor}"]
        members.append(VerifiableConsumer(broker.bootstrap, group, *options))
        return members[-1]

    yield start
    for member in members:
        member.kill()


@pytest.mark.parametrize(
    "assignor", ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
)
def test_java_members_share_the_partitions_and_read_everything(
    join: Callable[[str], VerifiableConsumer], assignor: str
) -> None:
    one, two = join(assignor), join(assignor)
    eventually(lambda: len(one.read | two.read) == 600, seconds_max=SECONDS_MAX, what="600 records")
    eventually(
        lambda: (len(one.assignment), len(two.assignment)) == (3, 3) and not one.assignment & two.assignment,
        seconds_max=SECONDS_MAX,
        what="three partitions each",
    )
    two.close()
    eventually(lambda: len(one.assignment) == PARTITIONS, seconds_max=SECONDS_MAX, what="all partitions with one")


@pytest.fixture
def tool(broker: BrokerProcess) -> Callable[..., ToolRun]:
    def run(main: str, *arguments: str) -> ToolRun:
        return run_tool(main, "--bootstrap-server", broker.bootstrap, *arguments)

    return run


def test_consumer_group_command_lists_describes_resets_and_deletes(tool: Callable[..., ToolRun], group: str) -> None:
    """One group's life, through the tools alone."""
    read = tool(
        f"{TOOLS}.consumer.ConsoleConsumer", "--topic", group, "--group", group, "--from-beginning",
        "--max-messages", "600",
    )  # fmt: skip
    assert len(read.checked().lines) == 600
    listed = tool(GROUPS, "--list", "--state").checked().stdout
    assert re.search(rf"{group}\s+Empty", listed)
    described = tool(GROUPS, "--describe", "--group", group).checked().stdout
    assert len(re.findall(rf"{group}\s+{group}\s+\d\s+100\s+100\s+0\s+-", described)) == PARTITIONS
    shifted = ("--reset-offsets", "--group", group, "--topic", f"{group}:0", "--shift-by", "-10")
    tool(GROUPS, *shifted, "--dry-run").checked()
    reset = tool(GROUPS, *shifted, "--execute").checked().stdout
    assert re.search(rf"{group}\s+{group}\s+0\s+90", reset)
    tool(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{group}:1").checked()
    described = tool(GROUPS, "--describe", "--group", group).checked().stdout
    assert re.search(rf"{group}\s+{group}\s+0\s+90\s+100\s+10\s", described)
    assert not re.search(rf"{group}\s+{group}\s+1\s+\d", described)
    deleted = tool(GROUPS, "--delete", "--group", group).checked().stdout
    assert f"Deletion of requested consumer groups ('{group}') was successful." in deleted
    assert group not in tool(GROUPS, "--list").checked().lines


def test_kafkas_formatters_read_our_records(
    tool: Callable[..., ToolRun], broker: BrokerProcess, group: str, is_control: bool
) -> None:
    console = f"{TOOLS}.consumer.ConsoleConsumer"
    tool(console, "--topic", group, "--group", group, "--from-beginning", "--max-messages", "600").checked()
    offsets = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "8000")
    committed = tool(console, *offsets, "--formatter", f"{TOOLS}.consumer.OffsetsMessageFormatter").stdout
    assert f'"group":"{group}","topic":"{group}","partition":0' in committed
    groups = tool(console, *offsets, "--formatter", f"{TOOLS}.consumer.GroupMetadataMessageFormatter").stdout
    assert f'{{"key":{{"type":2,"data":{{"group":"{group}"}}}}' in groups
    if not is_control:
        dumped = "".join(
            _dump(log) for log in sorted(broker.data.glob("__consumer_offsets-*/*.log")) if log.stat().st_size
        )
        assert f'"group":"{group}"' in dumped


def _dump(log: Path) -> str:
    return run_tool(f"{TOOLS}.DumpLogSegments", "--offsets-decoder", "--files", str(log)).checked().stdout
