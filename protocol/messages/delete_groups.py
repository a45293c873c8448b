"""DeleteGroups (key 42): delete groups that are empty."""

from __future__ import annotations

from tidemark.protocol.schema import array, int16, int32, message, string, struct


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = array("string")


@struct
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
