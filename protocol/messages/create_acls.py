"""CreateAcls (key 30): add access control entries. Version 1 brought pattern types (KIP-290)."""

from __future__ import annotations

from tidemark.protocol.schema import array, int8, int16, int32, message, string, struct


@struct
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=30, versions="1-3", flexible="2+", listeners="broker controller")
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@struct
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
