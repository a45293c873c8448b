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
    def decide(image: Image) -> list[Record]:
<<<<<<< HEAD
        records: list[Record] = [_update(image, update, version=_call.version) for update in request.feature_updates]
=======
        records: list[Record] = []
        for wish in request.feature_updates:
            check_level(image, wish.feature, wish.max_version_level, may_lower=_may_lower(wish, call.version))
            if finalized(image).get(wish.feature, 0) != wish.max_version_level:
                records.append(FeatureLevelRecord(name=wish.feature, level=wish.max_version_level))
>>>>>>> main
        return [] if request.validate_only else records

    try:
        await store.change(decide)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)
    return UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=each.feature) for each in request.feature_updates]
    )


<<<<<<< HEAD
def _update(image: Image, update: FeatureUpdateKey, *, version: int) -> FeatureLevelRecord:
    name, level = update.feature, update.max_version_level
    if name not in SUPPORTED:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"There is no feature {name!r} here.")
    if name in FIXED and level != SUPPORTED[name][1]:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"{name} is always {SUPPORTED[name][1]} here.")
    ranges = [SUPPORTED[name], *(broker.features.get(name, SUPPORTED[name]) for broker in image.brokers.values())]
    low, high = max(each[0] for each in ranges), min(each[1] for each in ranges)
    if not low <= level <= high:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"{name} can be {low} to {high}, not {level}.")
    may_lower = update.allow_downgrade if version == 0 else update.upgrade_type != UPGRADE
    if level < finalized(image)[name] and not may_lower:
        raise Refused(
            ErrorCode.INVALID_UPDATE_VERSION, f"{name} is {finalized(image)[name]}; lowering it must be asked for."
        )
    return FeatureLevelRecord(name=name, level=level)
=======
def _may_lower(wish: FeatureUpdateKey, version: int) -> bool:
    if version == 0:
        return wish.allow_downgrade
    if wish.upgrade_type not in UPGRADE_TYPES:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"There is no upgrade type {wish.upgrade_type}.")
    return wish.upgrade_type != UPGRADE
>>>>>>> main
