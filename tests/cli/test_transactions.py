"""`tidemark transactions` against an embedded broker, with a producer that has a transaction open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import tidemark
from tidemark.cli.main import main


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with tidemark.embedded(transaction_state_log_num_partitions=2) as running:
        yield running


@pytest.fixture(scope="module")
def sender(broker: Any) -> Producer:
    sender = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open-1", "linger.ms": 0})
    sender.init_transactions(20)
    sender.begin_transaction()
    sender.produce("orders", b"1", partition=0)
    sender.flush(20)
    return sender


@pytest.fixture
def run(broker: Any, sender: Producer, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        action, *rest = arguments
        code = main(["transactions", action, "-b", broker.bootstrap, *rest])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_list_shows_what_is_open(run: Any) -> None:
    code, out, _ = run("list", "--state", "Ongoing", "--pattern", "open-.*", "--json")
    assert code == 0
    [one] = json.loads(out)
    assert (one["id"], one["state"], one["coordinator"]) == ("open-1", "Ongoing", 0)
    assert run("list", "--longer-than-ms", "3600000")[1] == ""


def test_a_state_that_there_is_not_is_a_usage_error(run: Any) -> None:
    code, _, err = run("list", "--state", "Odd")
    assert (code, "no transaction state Odd" in err) == (2, True)


def test_describe_shows_the_partitions(run: Any) -> None:
    code, out, _ = run("describe", "--id", "open-1", "--json")
    assert code == 0
    shown = json.loads(out)
    assert (shown["state"], shown["partitions"]) == ("Ongoing", ["orders-0"])
    assert "orders-0" in run("describe", "--id", "open-1")[1]


def test_an_unknown_id_is_not_found(run: Any) -> None:
    code, _, err = run("describe", "--id", "nobody")
    assert (code, "no such transactional id" in err) == (4, True)


def test_an_open_transaction_that_its_coordinator_knows_does_not_hang(run: Any) -> None:
    assert run("find-hanging", "--older-than-ms", "0") == (0, "", "")
    assert run("find-hanging", "--topic", "nowhere")[0] == 4


def test_abort_ends_the_transaction_in_that_partition(run: Any) -> None:
    assert run("abort", "--topic", "orders", "--partition", "0")[0] == 2
    assert run("abort", "--topic", "orders", "--partition", "0", "--start-offset", "77")[0] == 4
    assert run("abort", "--topic", "orders", "--partition", "9", "--start-offset", "0")[0] == 4
    code, out, _ = run("abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
    assert (code, "orders-0" in out) == (0, True)
    assert run("abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")[0] == 4
