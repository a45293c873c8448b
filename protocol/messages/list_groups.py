"""ListGroups (key 16): the groups that this broker coordinates."""

from __future__ import annotations

from tidemark.protocol.schema import array, int16, int32, message, string, struct


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = array("string", "4+")
    types_filter: list[str] = array("string", "5+")


@struct
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
