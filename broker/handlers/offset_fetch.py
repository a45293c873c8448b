"""OffsetFetch: what groups have committed: for the partitions named, or for all that there are.

An answer that rests on a commit which is written but not yet committed waits for it: otherwise a failover could take
back an offset that a client has seen. With RequireStable, a partition whose offset a transaction is about to change is
UNSTABLE_OFFSET_COMMIT.

v2: a null list of topics means all; an error of the whole group (KIP-88)
v5: leader epochs (KIP-320)
v6: flexible (KIP-482)
v7: RequireStable (KIP-447)
v8: many groups in one request (KIP-709)
v9: member id and epoch of a consumer group (KIP-848)
v10: topics by id (KIP-848)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from tidemark.broker.core.deferred import Deferred, MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.broker.groups.many_partitions import PARTITIONS_AT_ONCE_MAX
from tidemark.broker.groups.offset_fetch import Position, Positions, committed_partitions, fetch
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

MANY_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10
GROUP_ERROR_FROM: Final = 2  # before, only partitions had an error


@handles(OffsetFetchRequest, OffsetFetchResponse)
def offset_fetch(
    request: OffsetFetchRequest, call: Call, *, groups: GroupCoordinator
) -> Job[MaybeDeferred[OffsetFetchResponse]]:
    """A commit that a failover could still undo is not shown: a group would go back behind where it began."""
    if call.version >= MANY_FROM:
        request.groups = yield from _once(request.groups)
    answer = yield from _offset_fetch(request, call, groups)
    asked = (each.group_id for each in request.groups) if call.version >= MANY_FROM else (request.group_id,)
    uncommitted: set[GroupShardHost] = set()
    for group_id in asked:
        hosted = groups.find(group_id)
        if isinstance(hosted, GroupShardHost) and not hosted.is_committed:
            uncommitted.add(hosted)
        yield
    if not uncommitted or call.version < GROUP_ERROR_FROM:
        return answer
    return _WhenCommitted(answer, uncommitted).deferred


class _WhenCommitted:
    """An answer that rests on what is written, but not committed yet."""

    def __init__(self, answer: OffsetFetchResponse, uncommitted: set[GroupShardHost]) -> None:
        self.deferred: Deferred[OffsetFetchResponse] = Deferred()
        self._answer = answer
        self._left = len(uncommitted)
        for hosted in uncommitted:
            hosted.when_committed(self._reached)

    def _reached(self, error: Exception | None) -> None:
        self._left -= 1
        if error is not None:
            code = ErrorCode.NOT_COORDINATOR
            groups = [OffsetFetchResponseGroup(group_id=each.group_id, error_code=code) for each in self._answer.groups]
            self._answer = OffsetFetchResponse(error_code=code, groups=groups)
        if not self._left:
            self.deferred.resolve(self._answer)


def _offset_fetch(request: OffsetFetchRequest, call: Call, groups: GroupCoordinator) -> Job[OffsetFetchResponse]:
    if call.version >= MANY_FROM:
        response = OffsetFetchResponse()
        for asked in request.groups:
            yield
            response.groups.append((yield from _group(asked, call, groups, stable=request.require_stable)))
        return response
    wanted = None if request.topics is None else (yield from _by_name(request.topics))
    found = yield from _positions(groups, request.group_id, wanted, stable=request.require_stable)
    if found.error_code and call.version < GROUP_ERROR_FROM:
        found = found._replace(topics=(yield from _nowhere(wanted or {})))
    response = OffsetFetchResponse(error_code=found.error_code)
    for name, positions in found.topics.items():
        partitions = yield from in_slices(partial(_partition_of_one, found.error_code), positions)
        response.topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return response


def _by_name(topics: Sequence[OffsetFetchRequestTopic]) -> Job[dict[str, Sequence[int]]]:
    wanted: dict[str, Sequence[int]] = {}
    for each in topics:
        wanted[each.name] = each.partition_indexes
        yield
    return wanted


def _nowhere(wanted: Mapping[str, Sequence[int]]) -> Job[dict[str, list[Position]]]:
    found = {}
    for name, indexes in wanted.items():
        found[name] = yield from in_slices(lambda index: Position(index, -1, -1, ""), indexes)
        yield
    return found


def _partition_of_one(code: ErrorCode, each: Position) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=each.partition,
        committed_offset=each.offset,
        committed_leader_epoch=each.leader_epoch,
        metadata=each.metadata,
        error_code=code or each.error_code,
    )


def _positions(
    groups: GroupCoordinator, group_id: str, wanted: Mapping[str, Sequence[int]] | None, **member: Any
) -> Job[Positions]:
    hosted = groups.find(group_id)
    if not isinstance(hosted, GroupShardHost):
        return Positions(hosted, {})
    found = fetch(hosted.shard, group_id, {}, **member)
    if wanted is None:
        wanted = committed_partitions(hosted.shard, group_id)
    for name, indexes in wanted.items():
        yield
        found.topics[name] = []
        for start in range(0, len(indexes), PARTITIONS_AT_ONCE_MAX):
            if found.error_code:
                return found
            part = {name: indexes[start : start + PARTITIONS_AT_ONCE_MAX]}
            positions = fetch(hosted.shard, group_id, part, **member)
            found.topics[name] += positions.topics.get(name, ())
            found = found._replace(error_code=positions.error_code)
            yield
    return Positions(found.error_code, {}) if found.error_code else found


def _group(
    asked: OffsetFetchRequestGroup, call: Call, groups: GroupCoordinator, *, stable: bool
) -> Job[OffsetFetchResponseGroup]:
    image = groups.image
    by_id = call.version >= TOPIC_IDS_FROM
    answer = OffsetFetchResponseGroup(group_id=asked.group_id)
    wanted = None
    if asked.topics is not None:
        wanted = {}
        for topic in asked.topics:
            yield
            name = image.topic_names.get(topic.topic_id) if by_id else topic.name
            if name is None:
                unknown = partial(_unknown, ErrorCode.UNKNOWN_TOPIC_ID)
                partitions = yield from in_slices(unknown, topic.partition_indexes)
                answer.topics.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
            else:
                wanted[name] = topic.partition_indexes
    found = yield from _positions(
        groups, asked.group_id, wanted, member_id=asked.member_id, epoch=asked.member_epoch, stable=stable
    )
    answer.error_code = found.error_code
    if found.error_code:
        answer.topics = []
    for name, positions in found.topics.items():
        known = image.topics.get(name)
        if by_id and known is None:
            continue  # deleted a moment ago: it has no id to name it by
        partitions = yield from in_slices(lambda each: _partition(each, each.error_code), positions)
        topic_id = bytes(16) if known is None else known.topic_id
        answer.topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    return answer


def _partition(position: Position, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=position.partition,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        metadata=position.metadata,
        error_code=code,
    )


def _unknown(code: ErrorCode, index: int) -> OffsetFetchResponsePartitions:
    return _partition(Position(index, -1, -1, ""), code)


def _once(asked: Sequence[OffsetFetchRequestGroup]) -> Job[list[OffsetFetchRequestGroup]]:
    """A group that is named again and again is answered once: clients find answers by the group's id."""
    by_id = {}
    for each in asked:
        by_id[each.group_id] = each
        yield
    return list(by_id.values())
