"""JoinQuorum (key 32002, our own): a node asks to follow the metadata log. It gets no vote by this."""

from __future__ import annotations

from tidemark.protocol.schema import int16, int32, message, string, uuid


@message(key=32002, versions="0", flexible="0+", listeners="controller")
class JoinQuorumRequest:
    node_id: int = int32()
    cluster_id: str = string()
    host: str = string()  # of its controller listener
    port: int = int32()
    directory_id: bytes = uuid(tag=0)  # of its metadata log; zero if it is not known


@message(key=32002, versions="0", flexible="0+")
class JoinQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    leader_id: int = int32(default=-1)
    leader_host: str = string()
    leader_port: int = int32()
