"""`tidemark quotas`, against a broker in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import tidemark
from tidemark.cli.main import main


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with tidemark.embedded() as broker:
        yield broker


def run(broker: Any, *words: str) -> int:
    return main(["quotas", *words, "-b", broker.bootstrap])


def listed(broker: Any, capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[Any, Any]]:
    capsys.readouterr()
    assert run(broker, "list", "--json", *words) == 0
    return [(each["entity"], each["quotas"]) for each in json.loads(capsys.readouterr().out)]


def test_quotas_are_set_listed_and_removed(broker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(broker, "set", "--for-user", "ann", "--producer-byte-rate", "5000000", "--request-percentage", "12.5") == 0
    )
    assert run(broker, "set", "--for-default-user", "--for-client-id", "app", "--consumer-byte-rate", "7") == 0
    assert run(broker, "set", "--for-ip", "10.0.0.9", "--connection-creation-rate", "3") == 0
    assert listed(broker, capsys, "--for-user", "ann") == [
        ({"user": "ann"}, {"producer_byte_rate": 5e6, "request_percentage": 12.5})
    ]
    assert run(broker, "list") == 0
    shown = capsys.readouterr().out
    assert "default user" in shown
    assert "5000000" in shown
    assert run(broker, "remove", "--for-user", "ann", "producer-byte-rate") == 0
    assert listed(broker, capsys, "--for-user", "ann") == [({"user": "ann"}, {"request_percentage": 12.5})]
    for entity in (["--for-user", "ann"], ["--for-default-user", "--for-client-id", "app"], ["--for-ip", "10.0.0.9"]):
        assert run(broker, "remove", *entity) == 0
    assert listed(broker, capsys) == []
    assert run(broker, "remove", "--for-user", "ann") == 4


@pytest.mark.parametrize(
    "words",
    [
        ["set", "--for-user", "ann"],
        ["set", "--producer-byte-rate", "5"],
        ["set", "--for-user", "ann", "--for-default-user", "--producer-byte-rate", "5"],
        ["set", "--for-user", "ann", "--producer-byte-rate", "many"],
        ["remove"],
        ["remove", "--for-user", "ann", "no-such-quota"],
    ],
)
def test_wrong_usage_is_told(broker: Any, words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(broker, *words)
    assert left.value.code == 2


def test_what_the_broker_refuses_is_told(broker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(broker, "set", "--for-user", "ann", "--producer-byte-rate", "-5") == 1
    assert "must be greater than 0" in capsys.readouterr().err


def test_top_shows_who_uses_what(broker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "busy", "linger.ms": 0})
        while not ended.is_set():
            producer.produce("t", bytes(1000))
            producer.flush()

    busy = threading.Thread(target=produce)
    busy.start()
    try:
        assert run(broker, "top", "--seconds", "0.5") == 0
        shown = capsys.readouterr().out
        assert run(broker, "top", "--seconds", "0.5", "--json") == 0
        used = json.loads(capsys.readouterr().out)
    finally:
        ended.set()
        busy.join()
    assert "busy" in shown
    (one,) = (each for each in used if each["client_id"] == "busy")
    assert one["produced"] > 1000
    assert one["request_percent"] > 0
