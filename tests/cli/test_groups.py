"""`tidemark groups` and `tidemark lag` against a broker in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemark import EmbeddedBroker, embedded
from tidemark.cli.main import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(offsets_topic_num_partitions=2) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            future.result()
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(20):
            producer.produce("orders", b"%d" % number, partition=number % 2, timestamp=1_700_000_000_000 + number)
        assert producer.flush(10) == 0
        yield running


@pytest.fixture
def tidemark(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--bootstrap", broker.bootstrap])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def commit(broker: EmbeddedBroker, group: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    positions = [TopicPartition("orders", index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def committed(tidemark: Run, group: str) -> list[int]:
    code, out, _ = tidemark("lag", "--group", group, "--json")
    assert code == 0
    return [each["current_offset"] for each in json.loads(out)]


def test_lag_is_what_is_left_to_read(broker: EmbeddedBroker, tidemark: Run) -> None:
    commit(broker, "reader", 3, 10)
    code, out, _ = tidemark("lag", "--group", "reader", "--json")
    assert code == 0
    assert [
        (each["partition"], each["current_offset"], each["end_offset"], each["lag"]) for each in json.loads(out)
    ] == [
        (0, 3, 10, 7),
        (1, 10, 10, 0),
    ]
    code, out, _ = tidemark("lag")
    head, *lines = out.splitlines()
    assert re.split(r"\s{2,}", head) == [
        "group", "topic", "partition", "current offset", "end offset", "lag", "member", "host", "client id",
    ]  # fmt: skip
    assert ["reader", "orders", "0", "3", "10", "7", "-", "-", "-"] in [line.split() for line in lines]


def test_groups_are_listed_and_described(broker: EmbeddedBroker, tidemark: Run) -> None:
    commit(broker, "listed", 1)
    _, out, _ = tidemark("groups", "list", "--json")
    assert {"group": "listed", "state": "Empty", "type": "Classic", "simple": True} in json.loads(out)
    _, out, _ = tidemark("groups", "list")
    assert ["listed", "Empty", "Classic"] in [line.split() for line in out.splitlines()]
    _, out, _ = tidemark("groups", "describe", "--group", "listed")
    assert out.startswith("listed  Empty, classic, 0 members\n")
    _, out, _ = tidemark("groups", "describe", "--group", "listed", "--json")
    [position] = json.loads(out)["partitions"]
    assert (position["topic"], position["partition"], position["lag"]) == ("orders", 0, 9)


@pytest.mark.parametrize("command", [("groups", "describe"), ("groups", "delete"), ("lag",)])
def test_a_group_that_is_not_there_is_not_found(tidemark: Run, command: tuple[str, ...]) -> None:
    code, out, err = tidemark(*command, "--group", "nobody")
    assert (code, out, err) == (4, "", "tidemark: There is no group nobody.\n")


def test_a_reset_changes_nothing_until_it_is_executed(broker: EmbeddedBroker, tidemark: Run) -> None:
    commit(broker, "careful", 5, 6)
    reset = ("groups", "reset-offsets", "--group", "careful", "--topic", "orders", "--to-earliest")
    code, out, err = tidemark(*reset)
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [["orders", "0", "5", "0"], ["orders", "1", "6", "0"]]
    assert err == "tidemark: nothing was changed; run it with --execute to make the change.\n"
    assert committed(tidemark, "careful") == [5, 6]
    code, _, err = tidemark(*reset, "--execute")
    assert (code, err) == (0, "")
    assert committed(tidemark, "careful") == [0, 0]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-offset", "4"), [4, 4]),
        (("--to-offset", "4000"), [10, 10]),
        (("--shift-by", "2"), [7, 8]),
        (("--shift-by", "-5"), [0, 1]),
        (("--to-datetime", "1700000000010"), [5, 5]),
        (("--to-datetime", "2023-11-14T22:13:20.010"), [5, 5]),
        (("--to-datetime", "2100-01-01"), [10, 10]),
    ],
)
def test_every_way_to_say_where(
    broker: EmbeddedBroker, tidemark: Run, where: tuple[str, ...], expected: list[int]
) -> None:
    commit(broker, "moved", 5, 6)
    code, _, _ = tidemark("groups", "reset-offsets", "--group", "moved", "--all-topics", *where, "--execute")
    assert code == 0
    assert committed(tidemark, "moved") == expected


def test_single_partitions_can_be_reset(broker: EmbeddedBroker, tidemark: Run) -> None:
    commit(broker, "single", 5, 6)
    tidemark("groups", "reset-offsets", "--group", "single", "--topic", "orders:1", "--to-latest", "--execute")
    assert committed(tidemark, "single") == [5, 10]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--topic", "nothing", "--to-latest"), 4, "Topic nothing: there is no such topic or partition."),
        (("--topic", "orders:7", "--to-latest"), 4, "Topic orders has 2 partition(s), and no partition 7."),
        (("--all-topics", "--to-latest"), 4, "Group fresh has committed nothing."),
        (("--topic", "orders", "--shift-by", "1"), 1, "there is nothing to shift."),
    ],
)
def test_a_reset_that_makes_no_sense_says_why(
    tidemark: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    got, _, err = tidemark("groups", "reset-offsets", "--group", "fresh", *arguments)
    assert got == code
    assert message in err


def test_an_active_group_is_left_alone(broker: EmbeddedBroker, tidemark: Run) -> None:
    commit(broker, "active", 1, 1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "active", "client.id": "worker"})
    try:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.1)
        code, _, err = tidemark("groups", "reset-offsets", "-g", "active", "--all-topics", "--to-latest", "--execute")
        assert code == 1
        assert "Group active is active (1 member): its offsets can be reset only while it has none." in err
        code, _, err = tidemark("groups", "delete", "--group", "active")
        assert (code, err) == (1, "tidemark: Group active has members. Stop them first.\n")
        _, out, _ = tidemark("lag", "--group", "active", "--json")
        assert {each["client_id"] for each in json.loads(out)} == {"worker"}
    finally:
        consumer.close()


def test_a_deleted_group_is_gone(broker: EmbeddedBroker, tidemark: Run) -> None:
    commit(broker, "doomed", 1)
    assert tidemark("groups", "delete", "--group", "doomed")[0] == 0
    assert "doomed" not in tidemark("groups", "list")[1]


def test_what_was_deleted_and_what_not_is_told_as_json(broker: EmbeddedBroker, tidemark: Run) -> None:
    commit(broker, "doomed", 1)
    code, out, err = tidemark("groups", "delete", "--group", "doomed", "--group", "never-there", "--json")
    gone, missing = json.loads(out)
    assert (code != 0, gone) == (True, {"group": "doomed", "deleted": True, "error": None})
    assert (missing["group"], missing["deleted"]) == ("never-there", False)
    assert err == f"tidemark: {missing['error']}\n"


@pytest.mark.parametrize("topic", ["", ":1", "orders:", "orders:x", "orders:1,"])
def test_a_topic_option_that_cannot_be_read_is_wrong_usage(tidemark: Run, topic: str) -> None:
    with pytest.raises(SystemExit) as caught:
        tidemark("groups", "reset-offsets", "--group", "g", "--topic", topic, "--to-latest")
    assert caught.value.code == 2
