"""AddRaftVoter (key 80): a node that follows the metadata may vote on it from now on (KIP-853)."""

from __future__ import annotations

from tidemark.protocol.schema import array, boolean, int16, int32, message, string, struct, uint16, uuid


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@message(key=80, versions="0-1", flexible="0+", listeners="broker controller")
class AddRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+", default="")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
