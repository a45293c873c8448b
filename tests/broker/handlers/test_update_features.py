from __future__ import annotations

from typing import Any

import pytest
from registered_brokers import features

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.api_versions import ApiVersionsRequest
from tidemark.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UPGRADE_TYPES_FROM = 1
RESULTS_TO = 1


def key(level: int, name: str = FEATURE, **fields: Any) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=name, max_version_level=level, **fields)


def downgrade(level: int, version: int) -> FeatureUpdateKey:
    fields = {"upgrade_type": SAFE_DOWNGRADE} if version >= UPGRADE_TYPES_FROM else {"allow_downgrade": True}
    return key(level, **fields)


async def update(client: Any, version: int, *updates: FeatureUpdateKey, only: bool = False) -> Any:
    return await client.ask(UpdateFeaturesRequest(feature_updates=list(updates), validate_only=only), version)


async def level(client: Any) -> int:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    told = (await client.ask(request, 4)).finalized_features
    return next((each.max_version_level for each in told if each.name == FEATURE), 0)


async def test_a_feature_is_lowered_and_raised_again(client: Any, version: int) -> None:
    before = await level(client)
    answer = await update(client, version, downgrade(before - 1, version))
    assert answer.error_code == ErrorCode.NONE
    assert [(each.feature, each.error_code) for each in answer.results] == (
        [(FEATURE, 0)] if version <= RESULTS_TO else []
    )
    assert await level(client) == before - 1
    assert (await update(client, version, key(before))).error_code == ErrorCode.NONE
    assert await level(client) == before


async def test_lowering_must_be_asked_for(client: Any, version: int) -> None:
    before = await level(client)
    assert (await update(client, version, key(before - 1))).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert await level(client) == before


@pytest.mark.parametrize("version", range(UPGRADE_TYPES_FROM, 3))
async def test_validate_only_changes_nothing(client: Any, version: int) -> None:
    before = await level(client)
    answer = await update(client, version, downgrade(before - 1, version), only=True)
    assert answer.error_code == ErrorCode.NONE
    assert await level(client) == before


async def test_all_features_of_a_request_change_or_none(client: Any, version: int) -> None:
    before = await level(client)
    for wrong in (key(99), key(1, name="no.such.feature"), key(1, name="metadata.version"), key(-1)):
        answer = await update(client, version, downgrade(before - 1, version), wrong)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.error_message
        assert await level(client) == before


async def test_a_level_that_one_broker_does_not_support_is_refused(cluster: Any) -> None:
    assert (await update(cluster.client, 2, downgrade(1, 2))).error_code == ErrorCode.NONE
    assert (await cluster.register(2, features=features(transaction_version=(0, 1)))).error_code == ErrorCode.NONE
    for version in range(3):
        answer = await update(cluster.client, version, key(2))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
