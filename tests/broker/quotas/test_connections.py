from __future__ import annotations

from typing import Any

import pytest

from tidemark.broker.config import load_config
from tidemark.broker.metadata.client_quotas import Entity
from tidemark.broker.metadata.image import Image
from tidemark.broker.quotas import connections
from tidemark.broker.quotas.connections import AT_ONCE, ConnectionRates

TWO = "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0"
SETTINGS: dict[str, Any] = {
    "listeners": TWO,
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def rates(**settings: Any) -> ConnectionRates:
    return ConnectionRates(load_config(overrides=SETTINGS | settings))


def quota_per_address(each: ConnectionRates, values: dict[Entity, dict[str, float]]) -> None:
    each.follow(Image(), Image(client_quotas=values))


def test_without_limits_everybody_is_let_in_at_once() -> None:
    admitted = rates()
    assert all(admitted.admit("CLIENTS", "1.1.1.1", 1.0) is AT_ONCE for _ in range(1000))


def test_connections_over_the_broker_s_rate_wait_their_turn() -> None:
    limited = rates(**{"max.connection.creation.rate": 10})
    waits = [limited.admit("CLIENTS", f"1.1.1.{index}", 5.0).seconds for index in range(30)]
    assert waits[:10] == [0] * 10
    assert waits[10:] == pytest.approx([(index + 1) / 10 for index in range(20)])
    assert limited.admit("BROKERS", "1.1.1.1", 5.0).seconds == 0, "brokers are not kept waiting by clients"


def test_a_flood_of_connections_does_not_shut_out_those_who_come_after_it() -> None:
    limited = rates(**{"max.connection.creation.rate": 10})
    flood = [limited.admit("CLIENTS", "6.6.6.6", 5.0) for _ in range(100_000)]
    assert max(each.seconds for each in flood if not each.is_refused) < 11
    assert flood[-1].is_refused
    assert not limited.admit("CLIENTS", "1.1.1.1", 6.0).is_refused
    assert limited.admit("CLIENTS", "1.1.1.1", 16.0).seconds < 1


def test_a_listener_has_a_rate_of_its_own() -> None:
    limited = rates(**{"listener.name.clients.max.connection.creation.rate": 1})
    assert [limited.admit("CLIENTS", "1.1.1.1", 1.0).seconds for _ in range(3)] == [0, 1, 2]
    assert limited.admit("BROKERS", "1.1.1.1", 1.0).seconds == 0


def test_rates_can_be_changed_while_the_broker_runs() -> None:
    limited = rates(**{"max.connection.creation.rate": 1})
    limited.admit("CLIENTS", "1.1.1.1", 1.0)
    limited.configure(load_config(overrides=SETTINGS))
    assert limited.admit("CLIENTS", "1.1.1.1", 1.0) is AT_ONCE


def test_an_address_over_its_quota_is_refused_and_others_are_not() -> None:
    limited = rates()
    quota_per_address(limited, {(("ip", "1.1.1.1"),): {"connection_creation_rate": 2.0}})
    admitted = [limited.admit("CLIENTS", "1.1.1.1", 1.0).is_refused for _ in range(5)]
    assert admitted == [False, False, False, True, True]
    assert not limited.admit("CLIENTS", "1.1.1.2", 1.0).is_refused
    assert not limited.admit("CLIENTS", "1.1.1.1", 2.0).is_refused
    quota_per_address(limited, {})
    assert all(limited.admit("CLIENTS", "1.1.1.1", 2.0) is AT_ONCE for _ in range(9))


def test_many_addresses_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ADDRESSES_MAX", 50)
    limited = rates()
    quota_per_address(limited, {(("ip", None),): {"connection_creation_rate": 2.0}})
    for number in range(500):
        limited.admit("CLIENTS", f"10.0.{number // 250}.{number % 250}", float(number))
    assert len(limited._addresses) <= 50
