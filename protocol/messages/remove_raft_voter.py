"""RemoveRaftVoter (key 81): a node votes on the metadata no longer (KIP-853)."""

from __future__ import annotations

from tidemark.protocol.schema import int16, int32, message, string, uuid


@message(key=81, versions="0", flexible="0+", listeners="broker controller")
class RemoveRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+", default="")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
