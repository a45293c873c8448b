"""APIs about groups, their members and what they have committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.core.registry import Call
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.security.access import TEXT, Access
from tidemark.broker.security.rule import (
    Narrowed,
    Rule,
    Verdict,
    each,
    narrow,
    refused,
    refused_each,
    split,
    topic_name,
    whole,
)
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages import consumer_group_describe as consumer_groups
from tidemark.protocol.messages import describe_groups as classic_groups
from tidemark.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidemark.protocol.messages.delete_groups import DeletableGroupResult
from tidemark.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidemark.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidemark.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TRANSACTION_FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
MANY_COORDINATORS_FROM: Final = 4
MANY_GROUPS_FROM: Final = 8
GROUP_ERROR_FROM: Final = 2  # of OffsetFetch
GROUP, TRANSACTION = 0, 1  # what FindCoordinator looks for

T = TypeVar("T")


def _of_group(operation: AclOperation) -> Rule:
    return whole(lambda access, request: access.group(operation, request.group_id), FAILED)


def _each_group(operation: AclOperation) -> Callable[[Access, str], bool]:
    return lambda access, group_id: access.group(operation, group_id)


# -- committed offsets ---------------------------------------------------


def offset_commit(request: OffsetCommitRequest, access: Access, _call: Call) -> Job[Verdict]:
    if not access.group(AclOperation.READ, request.group_id):
        return OffsetCommitResponse(
            topics=(yield from refused_each(partial(_uncommitted, code=FAILED), request.topics))
        )
    uncommitted = partial(_uncommitted, code=TOPIC_FAILED)
    return (yield from narrow(request, access, lambda topic: _may_read(access, topic), uncommitted))


def _may_read(access: Access, topic: Any) -> bool:
    name = topic_name(topic, access)
    return name is None or access.topic(AclOperation.READ, name)


def _uncommitted(topic: OffsetCommitRequestTopic, code: ErrorCode) -> Job[OffsetCommitResponseTopic]:
    partitions = yield from in_slices(
        lambda each: OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code),
        topic.partitions,
    )
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def offset_delete(request: OffsetDeleteRequest, access: Access, _call: Call) -> Job[Verdict]:
    if not access.group(AclOperation.DELETE, request.group_id):
        return (yield from refused(request, access, FAILED))
    return (yield from narrow(request, access, lambda topic: access.topic(AclOperation.READ, topic.name), _kept))


def _kept(topic: OffsetDeleteRequestTopic) -> Job[OffsetDeleteResponseTopic]:
    partitions = yield from in_slices(
        lambda each: OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=TOPIC_FAILED),
        topic.partitions,
    )
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


def offset_fetch(request: OffsetFetchRequest, access: Access, call: Call) -> Job[Verdict]:
    if call.version >= MANY_GROUPS_FROM:
        return (yield from _offsets_of_groups(request, access))
    if not access.group(AclOperation.DESCRIBE, request.group_id):
        shown = [] if call.version >= GROUP_ERROR_FROM else request.topics or []
        topics = yield from refused_each(partial(_unknown_old, code=FAILED), shown)
        return OffsetFetchResponse(error_code=FAILED, topics=topics)
    if request.topics is None:
        return Narrowed(request, lambda response: _hide_offsets(response, access))
    return (
        yield from narrow(
            request,
            access,
            lambda topic: access.topic(AclOperation.DESCRIBE, topic.name),
            partial(_unknown_old, code=TOPIC_FAILED),
        )
    )


def _unknown_old(topic: OffsetFetchRequestTopic, code: ErrorCode) -> Job[OffsetFetchResponseTopic]:
    partitions = yield from in_slices(
        lambda index: _unknown(OffsetFetchResponsePartition, index, code), topic.partition_indexes
    )
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


def _unknown(kind: Callable[..., T], index: int, code: ErrorCode) -> T:
    return kind(partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code)


def _hide_offsets(answer: OffsetFetchResponse | OffsetFetchResponseGroup, access: Access) -> Job[None]:
    """Who asks for everything gets what there is for it."""
    answer.topics = [  # type: ignore[assignment]
        topic for topic in answer.topics if access.topic(AclOperation.DESCRIBE, topic.name, quietly=True)
    ]
    return
    yield


def _offsets_of_groups(request: OffsetFetchRequest, access: Access) -> Job[Verdict]:
    allowed, denied = yield from split(
        request.groups, lambda group: access.group(AclOperation.DESCRIBE, group.group_id)
    )
    refusals = [OffsetFetchResponseGroup(group_id=group.group_id, error_code=FAILED) for group in denied]
    if not allowed:
        return OffsetFetchResponse(groups=refusals)
    request.groups = allowed
    unknown = {}
    for group in allowed:
        unknown[group.group_id] = yield from _narrow_topics(group, access)
    return Narrowed(request, lambda response: _complete_offsets(response, access, unknown, refusals))


def _narrow_topics(group: OffsetFetchRequestGroup, access: Access) -> Job[list[OffsetFetchResponseTopics] | None]:
    """The answers for topics that are taken out of the request; None: all are asked for."""
    if group.topics is None:
        return None
    group.topics, denied = yield from split(group.topics, lambda topic: _may_describe(access, topic))
    return (yield from refused_each(_unknown_topic, denied))


def _unknown_topic(topic: OffsetFetchRequestTopics) -> Job[OffsetFetchResponseTopics]:
    partitions = yield from in_slices(
        lambda index: _unknown(OffsetFetchResponsePartitions, index, TOPIC_FAILED), topic.partition_indexes
    )
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _may_describe(access: Access, topic: Any) -> bool:
    name = topic_name(topic, access)
    return name is None or access.topic(AclOperation.DESCRIBE, name)


def _complete_offsets(
    response: OffsetFetchResponse,
    access: Access,
    unknown: Mapping[str, list[OffsetFetchResponseTopics] | None],
    refusals: list[OffsetFetchResponseGroup],
) -> Job[None]:
    for group in response.groups:
        yield
        refused_topics = unknown[group.group_id]
        if refused_topics is None:
            yield from _hide_offsets(group, access)
        elif not group.error_code:
            group.topics += refused_topics
    response.groups += refusals


# -- finding and listing -------------------------------------------------


def find_coordinator(request: FindCoordinatorRequest, access: Access, call: Call) -> Job[Verdict]:
    kinds = {
        GROUP: (ResourceType.GROUP, FAILED),
        TRANSACTION: (ResourceType.TRANSACTIONAL_ID, TRANSACTION_FAILED),
    }
    if request.key_type not in kinds:
        return None
    kind, code = kinds[request.key_type]

    def may(key: str) -> bool:
        return access.may(AclOperation.DESCRIBE, kind, key)

    if call.version < MANY_COORDINATORS_FROM:
        if may(request.key):
            return None
        return FindCoordinatorResponse(error_code=code, error_message=TEXT[code], node_id=-1, port=-1)
    return (
        yield from narrow(
            request,
            access,
            may,
            lambda key: Coordinator(key=key, error_code=code, error_message=TEXT[code], node_id=-1, port=-1),
            asked="coordinator_keys",
            answered="coordinators",
        )
    )


def list_groups(request: ListGroupsRequest, access: Access, _call: Call) -> Verdict:
    if access.cluster(AclOperation.DESCRIBE, quietly=True):
        return None
    return Narrowed(request, lambda response: _hide_groups(response, access))


def _hide_groups(response: ListGroupsResponse, access: Access) -> Job[None]:
    shown = []
    for group in response.groups:
        if access.group(AclOperation.DESCRIBE, group.group_id, quietly=True):
            shown.append(group)
        yield
    response.groups = shown


# -- describing ----------------------------------------------------------


def describe_groups(request: classic_groups.DescribeGroupsRequest, access: Access, _call: Call) -> Job[Verdict]:
    return _described(request, access, classic_groups.DescribedGroup, "groups", _group_operations)


def consumer_group_describe(
    request: consumer_groups.ConsumerGroupDescribeRequest, access: Access, _call: Call
) -> Job[Verdict]:
    return _described(request, access, consumer_groups.DescribedGroup, "group_ids", _check_topics)


def _described(
    request: Any, access: Access, kind: Any, asked: str, shown: Callable[[Any, Access], None]
) -> Job[Verdict]:
    groups = getattr(request, asked)
    allowed, denied = yield from split(groups, lambda group_id: access.group(AclOperation.DESCRIBE, group_id))
    refusals = yield from in_slices(lambda group_id: kind(group_id=group_id, error_code=FAILED), denied)
    if not allowed:
        return access.response(groups=refusals)
    setattr(request, asked, allowed)

    def complete(response: Any) -> Job[None]:
        for group in response.groups:
            shown(group, access)
            yield
        response.groups += refusals

    return Narrowed(request, complete)


def _group_operations(group: Any, access: Access) -> None:
    mask = group.authorized_operations
    group.authorized_operations = access.of(mask, ResourceType.GROUP, group.group_id)


def _check_topics(group: consumer_groups.DescribedGroup, access: Access) -> None:
    """A group is shown whole or not at all (KIP-848)."""
    _group_operations(group, access)
    names = {
        topic.topic_name
        for member in group.members
        for assigned in (member.assignment, member.target_assignment)
        for topic in assigned.topic_partitions
    }
    if not all(access.topic(AclOperation.DESCRIBE, name) for name in sorted(names)):
        group.error_code = TOPIC_FAILED
        group.error_message = "The group has described topic(s) that the client is not authorized to describe."
        group.members = []


def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, access: Access, _call: Call) -> Job[Verdict]:
    if not access.group(AclOperation.READ, request.group_id):
        return (yield from refused(request, access, FAILED))
    for name in request.subscribed_topic_names or ():
        if not access.topic(AclOperation.DESCRIBE, name):
            return (yield from refused(request, access, TOPIC_FAILED))
        yield
    return None


RULES: Final[Mapping[str, Rule]] = {
    "FindCoordinator": find_coordinator,
    "JoinGroup": _of_group(AclOperation.READ),
    "SyncGroup": _of_group(AclOperation.READ),
    "Heartbeat": _of_group(AclOperation.READ),
    "LeaveGroup": _of_group(AclOperation.READ),
    "ConsumerGroupHeartbeat": consumer_group_heartbeat,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "OffsetDelete": offset_delete,
    "ListGroups": list_groups,
    "DescribeGroups": describe_groups,
    "ConsumerGroupDescribe": consumer_group_describe,
    "DeleteGroups": each(
        _each_group(AclOperation.DELETE),
        lambda group_id: DeletableGroupResult(group_id=group_id, error_code=FAILED),
        asked="groups_names",
        answered="results",
    ),
}
