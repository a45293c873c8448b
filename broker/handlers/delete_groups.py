"""DeleteGroups: remove groups and their offsets; only empty ones can go (KIP-229).

A group that is named twice is answered once. The answer waits until the removal is committed.

v1: the answer may say how long the client was throttled (KIP-219)
v2: flexible (KIP-482)
"""

from __future__ import annotations

from functools import partial

from tidemark.broker.core.deferred import CombinedAnswer, MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(DeleteGroupsRequest, DeleteGroupsResponse)
def delete_groups(
    request: DeleteGroupsRequest, _call: Call, *, groups: GroupCoordinator
) -> Job[MaybeDeferred[DeleteGroupsResponse]]:
    response = DeleteGroupsResponse()
    combined = CombinedAnswer(response)
    for group_id in dict.fromkeys(request.groups_names):
        yield
        result = DeletableGroupResult(group_id=group_id)
        response.results.append(result)
        hosted = groups.find(group_id)
        if isinstance(hosted, GroupShardHost):
            combined.add(hosted.finish(hosted.shard.delete_group(group_id)), partial(setattr, result, "error_code"))
        else:
            result.error_code = hosted
    return combined.answer()
