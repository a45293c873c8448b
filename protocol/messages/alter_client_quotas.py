"""AlterClientQuotas (key 49): set or take away quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from tidemark.protocol.schema import array, boolean, float64, int16, int32, message, string, struct


@struct
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+", default=None)


@struct
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class AlterationData:
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(key=49, versions="0-1", flexible="1+", listeners="broker controller")
class AlterClientQuotasRequest:
    entries: list[AlterationData] = array(AlterationData)
    validate_only: bool = boolean()


@struct
class AlteredEntityData:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entity: list[EntityData] = array(EntityData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[AlteredEntityData] = array(AlteredEntityData)
