"""BrokerHeartbeat: a broker is alive; the answer says whether it is caught up, fenced, and may shut down (KIP-631).

v1: log directories that have failed (KIP-858)
"""

from __future__ import annotations

from tidemark.broker.controller.controller import Controller
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


@handles(BrokerHeartbeatRequest, BrokerHeartbeatResponse)
async def broker_heartbeat(
    request: BrokerHeartbeatRequest, _call: Call, *, controller: Controller
) -> BrokerHeartbeatResponse:
    try:
        is_caught_up, is_fenced, may_go = await controller.heartbeat(
            request.broker_id,
            broker_epoch=request.broker_epoch,
            metadata_offset=request.current_metadata_offset,
            want_fence=request.want_fence,
            want_shut_down=request.want_shut_down,
            offline_log_dirs=list(map(bytes, request.offline_log_dirs)),
        )
    except Refused as refusal:
        return BrokerHeartbeatResponse(error_code=refusal.code)
    return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=may_go)
