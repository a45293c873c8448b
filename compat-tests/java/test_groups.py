"""Classic groups with Java consumers of every assignor, and Apache Kafka's tools to look after them."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all
from harness.java import ToolRun, run_tool, tool_command
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


class Member:
    """A VerifiableConsumer: it commits what it reads, and says so, and what it is assigned."""

    def __init__(self, bootstrap: str, group: str, assignor: str) -> None:
        arguments = ["--bootstrap-server", bootstrap, "--topic", group, "--group-id", group]
        arguments += ["--group-protocol", "classic", "--session-timeout", "6000", "--reset-policy", "earliest"]
        arguments += ["--assignment-strategy", f"{CLIENTS}.{assignor}"]
        self.assignment: set[int] = set()
        self.read: Counter[tuple[int, int]] = Counter()
        self._process = subprocess.Popen(
            tool_command(f"{TOOLS}.VerifiableConsumer", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            partitions = event.get("partitions", [])
            if event["name"] == "partitions_assigned":
                self.assignment |= {each["partition"] for each in partitions}
            elif event["name"] == "partitions_revoked":
                self.assignment -= {each["partition"] for each in partitions}
            elif event["name"] == "records_consumed":
                for each in partitions:
                    self.read.update((each["partition"], o) for o in range(each["minOffset"], each["maxOffset"] + 1))

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait(30)
        self._listener.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def join(broker: BrokerProcess, group: str) -> Iterator[Callable[[str], Member]]:
    members: list[Member] = []

    def start(assignor: str) -> Member:
        members.append(Member(broker.bootstrap, group, assignor))
        return members[-1]

    yield start
    for member in members:
        member.end(kill=True)


@pytest.mark.parametrize(
    "assignor", ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
)
def test_java_members_share_the_partitions_and_read_everything(join: Callable[[str], Member], assignor: str) -> None:
    one, two = join(assignor), join(assignor)
    eventually(lambda: len(one.read | two.read) == 600, seconds_max=SECONDS_MAX, what="600 records")
    eventually(
        lambda: (len(one.assignment), len(two.assignment)) == (3, 3) and not one.assignment & two.assignment,
        seconds_max=SECONDS_MAX,
        what="three partitions each",
    )
    two.end()
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
