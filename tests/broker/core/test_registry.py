from __future__ import annotations

import pytest

from tidemark.broker.core.api_table import api_table
from tidemark.broker.core.registry import find_route, handles
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.produce import ProduceRequest, ProduceResponse


@pytest.mark.parametrize("key", api_table())
def test_every_api_in_the_table_has_a_handler_of_its_name(key: int) -> None:
    route, entry = find_route(key), api_table()[key]
    assert route is not None
    assert (route.key, route.name, route.versions) == (key, entry.name, entry.versions)
    assert (route.request, route.response) == (entry.request, entry.response)
    assert route.handle.__name__ == entry.module


def test_an_unknown_key_has_no_route() -> None:
    assert find_route(12_345) is None


def test_a_second_handler_is_refused() -> None:
    find_route(18)
    with pytest.raises(TypeError, match="two handlers"):
        handles(ApiVersionsRequest, ApiVersionsResponse)(lambda _request, _call: None)


def test_a_handler_in_a_file_of_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.broker.core.registry._routes", {})
    with pytest.raises(TypeError, match="Produce is answered by a function produce in handlers/produce"):
        handles(ProduceRequest, ProduceResponse)(lambda _request, _call: None)
