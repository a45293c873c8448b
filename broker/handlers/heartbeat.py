"""Heartbeat: a member of a classic group is alive. The most frequent request of an idle cluster."""

from __future__ import annotations

from typing import Any, Final

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

_ALIVE: Final = HeartbeatResponse()  # most answers are this one, and nobody changes it


@handles(HeartbeatRequest, HeartbeatResponse)
def heartbeat(request: HeartbeatRequest, _call: Call, *, groups: GroupCoordinator) -> Any:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    hosted = groups.find(request.group_id)
    if type(hosted) is not GroupShardHost:
        return HeartbeatResponse(error_code=_loading_is_fine(hosted))
    code = hosted.finish(hosted.shard.heartbeat(request, groups.now_ms()))
    if type(code) is Deferred:
        answer: Deferred[HeartbeatResponse] = Deferred()
        code.then(lambda late: answer.resolve(HeartbeatResponse(error_code=late)))
        return answer
    return _ALIVE if code == 0 else HeartbeatResponse(error_code=code)


def _loading_is_fine(code: Any) -> ErrorCode:
    """While groups are loaded nobody's session ends: there is nothing that the client could do about it."""
    return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else ErrorCode(code)
