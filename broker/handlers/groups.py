"""ListGroups, DescribeGroups, DeleteGroups: what an administrator asks of groups.

DescribeGroups tells of classic groups only. One that does not exist is "Dead"; from version 6 that is also an error.
"""

from __future__ import annotations

from typing import Any, Final

from tidemark.broker.core.acl_operations import GROUP_OPERATIONS
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from tidemark.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidemark.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

GROUP_ID_NOT_FOUND_FROM: Final = 6
DEAD: Final = "Dead"


@handles(ListGroupsRequest, ListGroupsResponse)
def list_groups(request: ListGroupsRequest, _call: Call, *, groups: GroupCoordinator) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse()
    for hosted in groups:
        if hosted.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for group in hosted.shard.groups.values():
            if (states and group.state_name.lower() not in states) or (kinds and group.kind not in kinds):
                continue
            listed = ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type_name,
                group_state=group.state_name,
                group_type=group.kind.capitalize(),
            )
            response.groups.append(listed)
    return response


@handles(DescribeGroupsRequest, DescribeGroupsResponse)
def describe_groups(request: DescribeGroupsRequest, call: Call, *, groups: GroupCoordinator) -> DescribeGroupsResponse:
    described = [_describe(group_id, call.version, groups) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=described)


def _describe(group_id: str, version: int, groups: GroupCoordinator) -> DescribedGroup:
    hosted = groups.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
    if not isinstance(hosted, GroupShardHost):
        return DescribedGroup(group_id=group_id, error_code=hosted)
    group = hosted.shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        absent = DescribedGroup(group_id=group_id, group_state=DEAD)
        if version >= GROUP_ID_NOT_FOUND_FROM:
            absent.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            absent.error_message = f"There is no classic group {group_id}."
        return absent
    is_stable = group.state_name == "Stable"
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type_name,
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )


@handles(DeleteGroupsRequest, DeleteGroupsResponse)
def delete_groups(request: DeleteGroupsRequest, _call: Call, *, groups: GroupCoordinator) -> Any:
    response = DeleteGroupsResponse()
    waiting = _Waiting(response)
    for group_id in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id=group_id)
        response.results.append(result)
        hosted = groups.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if isinstance(hosted, GroupShardHost):
            waiting.take(result, hosted.finish(hosted.shard.delete_group(group_id)))
        else:
            result.error_code = hosted
    return waiting.later if waiting.left else response


class _Waiting:
    """For the outcomes that are not committed yet."""

    def __init__(self, response: DeleteGroupsResponse) -> None:
        self.later: Deferred[DeleteGroupsResponse] = Deferred()
        self.left = 0
        self._response = response

    def take(self, result: DeletableGroupResult, code: Any) -> None:
        if not isinstance(code, Deferred):
            result.error_code = code
            return
        self.left += 1
        code.then(lambda late: self._committed(result, late))

    def _committed(self, result: DeletableGroupResult, code: ErrorCode) -> None:
        result.error_code = code
        self.left -= 1
        if not self.left:
            self.later.resolve(self._response)
