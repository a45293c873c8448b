"""DeleteGroups: remove groups and their offsets; only empty ones can go (KIP-229).

A group that is named twice is answered once. The answer waits until the removal is committed.

v1: the answer may say how long the client was throttled (KIP-219)
v2: flexible (KIP-482)
"""

from __future__ import annotations

from typing import Any

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


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
