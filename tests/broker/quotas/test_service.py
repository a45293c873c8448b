from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.broker.config import load_config
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import Principal
from tidemark.broker.core.registry import Call
from tidemark.broker.metadata.client_quotas import Entity
from tidemark.broker.metadata.image import Image
from tidemark.broker.quotas import service
from tidemark.broker.quotas.service import Quotas
from tidemark.protocol.errors import ErrorCode

ANN: Entity = (("user", "ann"),)


def follow(quotas: Quotas, values: dict[Entity, dict[str, float]]) -> None:
    quotas.follow(Image(), Image(client_quotas=values))


def connection(user: str, client_id: str | None) -> Any:
    return SimpleNamespace(principal=Principal("User", user), client_id=client_id, meter=None)


@pytest.fixture
def quotas() -> Quotas:
    return Quotas(load_config())


def test_a_user_s_quota_is_shared_by_all_of_its_clients(quotas: Quotas) -> None:
    follow(quotas, {ANN: {"producer_byte_rate": 1000.0}})
    one, two = (quotas.meter_of(connection("ann", each)) for each in ("a", "b"))
    assert one is not two
    assert one.produce is two.produce is not None
    assert one.fetch is None
    assert quotas.meter_of(connection("bob", "a")).produce is None


def test_a_change_counts_from_the_next_request_on_and_what_was_used_is_remembered(quotas: Quotas) -> None:
    follow(quotas, {ANN: {"producer_byte_rate": 1000.0}})
    client = connection("ann", "a")
    assert quotas.meter_of(client).produced(10_500) == pytest.approx(10, abs=0.1)
    follow(quotas, {ANN: {"producer_byte_rate": 100.0}})
    assert quotas.meter_of(client).produced(0) == pytest.approx(100, abs=1)
    follow(quotas, {ANN: {"consumer_byte_rate": 100.0}})
    assert quotas.meter_of(client).produced(1 << 30) == 0
    assert quotas.meter_of(client).produced_bytes == 10_500 + (1 << 30)


def test_counting_begins_with_the_first_quota_of_clients_and_ends_with_the_last(quotas: Quotas) -> None:
    changes = []
    quotas.watch(lambda: changes.append((quotas.is_active, quotas.counts_time)))
    follow(quotas, {(("ip", None),): {"connection_creation_rate": 1.0}})
    follow(quotas, {ANN: {"producer_byte_rate": 1.0}})
    follow(quotas, {ANN: {"request_percentage": 1.0}})
    follow(quotas, {})
    assert changes == [(True, False), (True, True), (False, False)]


async def test_who_asks_for_usage_has_it_counted_for_a_while(quotas: Quotas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WATCHED_SECONDS", 0.0)
    quotas.watch_usage()
    assert quotas.is_active
    client = connection("ann", "a")
    quotas.meter_of(client).produced(5)
    [usage] = quotas.usage()
    assert (usage.user, usage.client_id, usage.produced_bytes) == ("ann", "a", 5)
    quotas._end_watch()
    assert not quotas.is_active
    assert not list(quotas.usage())
    quotas.watch_usage()
    quotas.meter_of(client).produced(7)
    assert [each.produced_bytes for each in quotas.usage()] == [7], "the same connection is counted again"


def test_a_client_that_changes_its_id_all_the_time_fills_no_memory(
    quotas: Quotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CLIENTS_MAX", 100)
    follow(quotas, {(("client-id", None),): {"producer_byte_rate": 1.0}, ANN: {"consumer_byte_rate": 1.0}})
    ann = connection("ann", "steady")
    for number in range(1000):
        quotas.meter_of(ann).fetched(1)
        quotas.meter_of(connection("eve", f"id-{number}")).produced(1)
    assert len(list(quotas.usage())) <= 100
    assert len(quotas._allowances) <= 100
    assert quotas.meter_of(ann).fetched_bytes == 1000, "one that is busy is kept"
    assert quotas.meter_of(connection("ann", "another")).fetch is quotas.meter_of(ann).fetch


def test_of_a_long_client_id_only_so_much_is_remembered_as_a_quota_can_name(quotas: Quotas) -> None:
    follow(quotas, {(("client-id", None),): {"producer_byte_rate": 1000.0, "controller_mutation_rate": 1.0}})
    meter = quotas.meter_of(connection("eve", "x" * 30_000))
    quotas.mutation(Call(connection("eve", None), 7, "x" * 30_000), strict_from=6)
    assert len(meter.client_id) == 1024
    assert all(len(share.client_id or "") <= 1024 for _, share in quotas._allowances)


def test_a_debt_is_not_forgotten_for_want_of_room(quotas: Quotas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CLIENTS_MAX", 100)
    follow(quotas, {(("client-id", None),): {"producer_byte_rate": 1000.0}, ANN: {"producer_byte_rate": 1000.0}})
    assert quotas.meter_of(connection("ann", "a")).produced(1_000_000) > 900
    for number in range(300):
        quotas.meter_of(connection("eve", f"id-{number}")).produced(1)
    assert quotas.meter_of(connection("ann", "a")).produced(1) > 900


def mutation(quotas: Quotas, version: int) -> Any:
    client = SimpleNamespace(principal=Principal("User", "ann"))
    return quotas.mutation(Call(client, version, "a"), strict_from=6)


def test_partitions_are_refused_once_too_many_were_made(quotas: Quotas) -> None:
    follow(quotas, {ANN: {"controller_mutation_rate": 1.0}})
    mutation(quotas, 6).take(30)  # more than the windows allow: it passes, and is a debt
    assert mutation(quotas, 6).throttle_time_ms == pytest.approx(20_000, abs=1000)
    with pytest.raises(Refused) as refused:
        mutation(quotas, 6).take(1)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    mutation(quotas, 5).take(5)  # an older client is only told to wait
    assert mutation(quotas, 5).throttle_time_ms > 24_000
    assert quotas.mutation(Call(None, 7, None), strict_from=6).throttle_time_ms == 0, "a node's own request"


@pytest.mark.parametrize("bound", [5e-324, 1e-12, 1e308])
def test_the_least_and_the_most_that_a_quota_can_be(quotas: Quotas, bound: float) -> None:
    keys = ("request_percentage", "controller_mutation_rate")
    follow(quotas, {ANN: dict.fromkeys(keys, bound)})
    meter = quotas.meter_of(connection("ann", "a"))
    meter.worked(5.0)
    assert meter.time_used() == (1.0 if bound < 1 else 0.0)
    mutation(quotas, 6).take(100)
    assert mutation(quotas, 6).throttle_time_ms == (2**31 - 1 if bound < 1 else 0)
    follow(quotas, {ANN: dict.fromkeys(keys, 1e6)})
    assert mutation(quotas, 6).throttle_time_ms < 1000
