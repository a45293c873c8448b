"""ConsumerGroupDescribe: groups that the broker assigns, with members, what these own and what they shall own
(KIP-848).

A group of another kind is GROUP_ID_NOT_FOUND here, which makes tools ask DescribeGroups.

v1: which members speak the classic protocol (KIP-1099)
"""

from __future__ import annotations

from tidemark.broker.core.acl_operations import GROUP_OPERATIONS
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.groups.consumer.describe import describe
from tidemark.broker.groups.consumer.group import ConsumerGroup
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handles(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, _call: Call, *, groups: GroupCoordinator
) -> Job[ConsumerGroupDescribeResponse]:
    described = []
    for group_id in request.group_ids:
        described.append((yield from _describe(groups, group_id)))
        yield
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=described)


def _describe(groups: GroupCoordinator, group_id: str) -> Job[DescribedGroup]:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    hosted = groups.find(group_id)
    if not isinstance(hosted, GroupShardHost):
        return DescribedGroup(group_id=group_id, error_code=hosted)
    group = hosted.shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return (yield from describe(hosted.shard, group))
    problem = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
    return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=problem)
