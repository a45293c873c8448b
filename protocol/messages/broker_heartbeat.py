"""BrokerHeartbeat (key 63): a broker is alive, wants to be unfenced, or to leave (KIP-631)."""

from __future__ import annotations

from tidemark.protocol.schema import array, boolean, int16, int32, int64, message


@message(key=63, versions="0-1", flexible="0+", listeners="controller")
class BrokerHeartbeatRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array("uuid", "1+", tag=0)


@message(key=63, versions="0-1", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
