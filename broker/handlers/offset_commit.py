"""OffsetCommit: how far a group has read, kept in `__consumer_offsets`. The answer waits until that is committed.

A member must give its generation or epoch; a client that is no member (an admin tool, a consumer without a group) gives
-1, and is refused while the group has members. An empty group id is accepted, for old clients, here, by OffsetFetch,
DescribeGroups and DeleteGroups.

v2: the retention time of a commit, which has no effect any more (KIP-211; gone in v5)
v6: leader epochs (KIP-320)
v7: group instance ids (KIP-345)
v8: flexible (KIP-482)
v9: epochs of consumer groups in the field of the generation (KIP-848)
v10: topics by id (KIP-848)
"""

from __future__ import annotations

from tidemark.broker.core.deferred import MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.broker.groups.many_partitions import in_parts, is_large
from tidemark.broker.groups.offset_commit import commit, refuse_all
from tidemark.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


@handles(OffsetCommitRequest, OffsetCommitResponse)
def offset_commit(
    request: OffsetCommitRequest, call: Call, *, groups: GroupCoordinator
) -> MaybeDeferred[OffsetCommitResponse] | Job[MaybeDeferred[OffsetCommitResponse]]:
    if is_large(request):
        return in_parts(request, lambda part: _commit(part, call, groups))
    return _commit(request, call, groups)


def _commit(request: OffsetCommitRequest, call: Call, groups: GroupCoordinator) -> MaybeDeferred[OffsetCommitResponse]:
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return refuse_all(request, hosted)
    return hosted.finish(commit(hosted.shard, request, version=call.version, now_ms=groups.now_ms()))
