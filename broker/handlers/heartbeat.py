"""Heartbeat: a member of a classic group is alive; it hears REBALANCE_IN_PROGRESS when it is to join again.

The most frequent request of an idle cluster.

v3: group instance ids (KIP-345)
v4: flexible (KIP-482)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.deferred import MaybeDeferred, mapped
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

_ALIVE: Final = HeartbeatResponse()  # most answers are this one, and no code changes it


@handles(HeartbeatRequest, HeartbeatResponse)
def heartbeat(request: HeartbeatRequest, _call: Call, *, groups: GroupCoordinator) -> MaybeDeferred[HeartbeatResponse]:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    hosted = groups.find(request.group_id)
    if isinstance(hosted, ErrorCode):
        return HeartbeatResponse(error_code=_loading_is_fine(hosted))
    code: MaybeDeferred[ErrorCode] = hosted.finish(hosted.shard.heartbeat(request, groups.now_ms()))
    return _response(code) if isinstance(code, ErrorCode) else mapped(code, _response)


def _response(code: ErrorCode) -> HeartbeatResponse:
    return _ALIVE if code is ErrorCode.NONE else HeartbeatResponse(error_code=code)


def _loading_is_fine(code: ErrorCode) -> ErrorCode:
    """While groups are loaded no session ends: the client could do nothing about it."""
    return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
