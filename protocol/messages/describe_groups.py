"""DescribeGroups (key 15): classic groups and their members."""

from __future__ import annotations

from tidemark.protocol.schema import Bytes, array, blob, boolean, int16, int32, message, string, struct


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean("3+")


@struct
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: Bytes = blob()
    member_assignment: Bytes = blob()


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)
