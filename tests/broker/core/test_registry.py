from __future__ import annotations

import pkgutil

import pytest

import tidemark.broker.handlers
from tidemark.broker.core.api_table import BETWEEN_NODES, SERVED
from tidemark.broker.core.registry import find_route, handles
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.produce import ProduceRequest, ProduceResponse


@pytest.mark.parametrize("key", SERVED)
def test_every_api_that_clients_are_told_of_has_a_handler(key: int) -> None:
    route = find_route(key)
    assert route is not None
    assert (route.key, route.name, route.versions.last) == (key, SERVED[key].name, SERVED[key].versions.last)


def test_every_handler_module_is_named_in_the_table() -> None:
    modules = {module.name for module in pkgutil.iter_modules(tidemark.broker.handlers.__path__)}
    assert modules == {served.module for served in (*SERVED.values(), *BETWEEN_NODES.values())}


def test_the_table_is_in_the_order_of_the_keys() -> None:
    assert list(SERVED) == sorted(SERVED)
    assert list(BETWEEN_NODES) == sorted(BETWEEN_NODES)


def test_an_unknown_key_has_no_route() -> None:
    assert find_route(12_345) is None


def test_a_second_handler_is_refused() -> None:
    find_route(18)
    with pytest.raises(TypeError, match="two handlers"):
        handles(ApiVersionsRequest, ApiVersionsResponse)(lambda _request, _call: None)


def test_a_handler_that_the_table_places_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.broker.core.registry._routes", {})
    with pytest.raises(TypeError, match=r"not what the table of APIs says"):
        handles(ProduceRequest, ProduceResponse)(lambda _request, _call: None)
