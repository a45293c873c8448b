"""DescribeGroups: classic groups with their members, metadata and assignments.

Groups of other kinds are answered as if they did not exist: ConsumerGroupDescribe is for those. What members
subscribe to and own is only shown while the group is stable, since during a rebalance it would be half old and half
new.

v3: authorized operations (KIP-430)
v4: group instance ids (KIP-345)
v5: flexible (KIP-482)
v6: a group that does not exist is GROUP_ID_NOT_FOUND with a message; before, only its state was "Dead" (KIP-1043)
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import Final

from tidemark.broker.core.acl_operations import GROUP_OPERATIONS
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.classic.member import Member, Protocols, metadata_of
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

GROUP_ID_NOT_FOUND_FROM: Final = 6
DEAD: Final = "Dead"


@handles(DescribeGroupsRequest, DescribeGroupsResponse)
def describe_groups(
    request: DescribeGroupsRequest, call: Call, *, groups: GroupCoordinator
) -> Job[DescribeGroupsResponse]:
    described = []
    for group_id in request.groups:
        described.append((yield from _describe(group_id, call.version, groups)))
        yield
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=described)


def _describe(group_id: str, version: int, groups: GroupCoordinator) -> Job[DescribedGroup]:
    hosted = groups.find(group_id)
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
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type_name,
        protocol_data=(group.protocol or "") if is_stable else "",
    )
    # As they are in this moment: while they are described, the group may change.
    members = list(group.members.values())
    protocols = [each.protocols for each in members] if is_stable else repeat(())
    assignments = [each.assignment for each in members] if is_stable else repeat(b"")
    shown = zip(members, protocols, assignments, strict=False)
    described.members = yield from in_slices(partial(_member, group.protocol), shown)
    return described


def _member(protocol: str | None, shown: tuple[Member, Protocols, bytes]) -> DescribedGroupMember:
    member, protocols, assignment = shown
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata_of(protocols, protocol),
        member_assignment=assignment,
    )
