from __future__ import annotations

from typing import Any

import pytest

from tidemark.broker.core.api_table import served_on
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse


async def ask(client: Any, version: int, **fields: str) -> Any:
    named = {"client_software_name": "test", "client_software_version": "1.0", **fields}
    return await client.call(ApiVersionsRequest(**named), ApiVersionsResponse, version)


TELEMETRY = (71, 72)  # where somebody can see it, and asks for it: tests/broker/telemetry


@pytest.mark.parametrize("version", range(5))
async def test_it_tells_what_is_served_and_nothing_else(client: Any, version: int) -> None:
    answer = await ask(client, version)
    assert {each.api_key for each in answer.api_keys} == {
        key for key, entry in served_on("broker").items() if not entry.is_private and key not in TELEMETRY
    }
    assert [(each.min_version, each.max_version) for each in answer.api_keys if each.api_key == 3] == [(0, 13)]


async def test_produce_is_listed_from_version_0_though_0_to_2_are_refused(client: Any) -> None:
    answer = await ask(client, 0)
    assert [each.min_version for each in answer.api_keys if each.api_key == 0] == [0]


async def test_quotas_can_be_described_and_altered(client: Any) -> None:
    keys = {each.api_key for each in (await ask(client, 4)).api_keys}
    assert {48, 49} <= keys


async def test_features_whose_minimum_is_0_are_returned_from_version_4_on(client: Any) -> None:
    told = {each.name: each.min_version for each in (await ask(client, 3)).supported_features}
    assert all(told.values())
    assert "transaction.version" not in told
    (feature,) = (each for each in (await ask(client, 4)).supported_features if each.name == "transaction.version")
    assert (feature.min_version, feature.max_version) == (0, 2)


@pytest.mark.parametrize("version", [3, 4])
async def test_the_finalized_level_is_returned_in_every_version_with_features(client: Any, version: int) -> None:
    levels = {each.name: each.max_version_level for each in (await ask(client, version)).finalized_features}
    assert levels["transaction.version"] == 2


async def test_a_feature_at_level_0_is_not_listed_as_finalized(client: Any) -> None:
    lower = FeatureUpdateKey(feature="transaction.version", max_version_level=0, upgrade_type=2)
    done = await client.call(UpdateFeaturesRequest(feature_updates=[lower]), UpdateFeaturesResponse, 1)
    assert done.error_code == ErrorCode.NONE
    levels = {each.name: each.max_version_level for each in (await ask(client, 4)).finalized_features}
    assert "transaction.version" not in levels
    assert all(levels.values())


@pytest.mark.parametrize("name", ["", "-x", "a b", "ünder"])
async def test_a_client_must_have_a_legal_name_from_version_3_on(client: Any, name: str) -> None:
    assert (await ask(client, 3, client_software_name=name)).error_code == ErrorCode.INVALID_REQUEST
    assert (await ask(client, 2)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("listeners", ["", "HTTP://127.0.0.1:0"], ids=["plain", "measured"])
async def test_an_unknown_version_is_answered_in_the_oldest_form(start_node: Any, connect: Any, listeners: str) -> None:
    """As Java clients since 4.4 begin; where there is HTTP, requests are measured."""
    client = await connect(await start_node(http_listeners=listeners))
    for _ in range(3):
        client.writer.write(b"\0\0\0\x0e" + b"\0\x12" + b"\0\x7f" + b"\0\0\0\x01" + b"\0\x04test")
        answer = await client.receive(ApiVersionsResponse, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
    assert (await ask(client, 4)).error_code == ErrorCode.NONE
