"""UpdateFeatures: the levels of features that the whole cluster uses (KIP-584).

Only what every broker supports can be finalized; all features of a request change or none. The controller decides;
other brokers forward the request to it.

v1: the type of the change (upgrade, safe or unsafe downgrade), ValidateOnly (KIP-778)
v2: no results of single features any more, only an error of the whole answer (KIP-1022)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, finished, in_slices
from tidemark.broker.metadata.features import check_level, finalized
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import FeatureLevelRecord, Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE: Final = 1
UPGRADE_TYPES: Final = (UPGRADE, 2, 3)  # 2 and 3: a downgrade, safe or not


@handles(UpdateFeaturesRequest, UpdateFeaturesResponse, on_controller=True)
async def update_features(
    request: UpdateFeaturesRequest, call: Call, *, store: MetadataStore
) -> UpdateFeaturesResponse:
    def decide(image: Image) -> Job[list[Record]]:
        levels: dict[str, int] = {}
        for update in request.feature_updates:
            yield
            check_level(image, update.feature, update.max_version_level, may_lower=_may_lower(update, call.version))
            if finalized(image).get(update.feature, 0) != update.max_version_level:
                levels[update.feature] = update.max_version_level
        if request.validate_only:
            return []
        return [FeatureLevelRecord(name=name, level=level) for name, level in levels.items()]

    try:
        await store.change(decide)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)
    results = await finished(in_slices(_done, request.feature_updates))
    return UpdateFeaturesResponse(results=results)


def _done(update: FeatureUpdateKey) -> UpdatableFeatureResult:
    return UpdatableFeatureResult(feature=update.feature)


def _may_lower(update: FeatureUpdateKey, version: int) -> bool:
    if version == 0:
        return update.allow_downgrade
    if update.upgrade_type not in UPGRADE_TYPES:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"There is no upgrade type {update.upgrade_type}.")
    return update.upgrade_type != UPGRADE
