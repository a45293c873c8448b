"""What nodes of one cluster tell each other beside Kafka's own messages. Not served to clients, nor told to them."""

from __future__ import annotations

from tidemark.protocol.schema import blob, int16, int32, int64, message, string, uuid


@message(key=32000, versions="0", flexible="0+")
class RaftMessageRequest:
    """A message of the quorum, which has no answer."""

    sender: int = int32()
    data: bytes = blob()
    # Tags, so that a Tidemark from before them reads the message, too. What is not known is empty or zero.
    cluster_id: str = string(tag=0)
    sender_directory_id: bytes = uuid(tag=1)
    receiver_directory_id: bytes = uuid(tag=2)  # as the sender's configuration has it


@message(key=32000, versions="0", flexible="0+")
class RaftMessageResponse:
    """Never sent."""


@message(key=32001, versions="0", flexible="0+")
class ForwardedRequest:
    """A client's request, passed on to the controller."""

    api_key: int = int16()
    api_version: int = int16()
    client_id: str | None = string(nullable="0+", default=None)
    body: bytes = blob()


@message(key=32001, versions="0", flexible="0+")
class ForwardedResponse:
    error_code: int = int16()
    index: int = int64()  # what the controller had applied when it answered
    body: bytes = blob()


@message(key=32002, versions="0", flexible="0+")
class JoinQuorumRequest:
    """A node asks to follow the metadata; it has no vote."""

    node_id: int = int32()
    cluster_id: str = string()
    host: str = string()  # of its controller listener
    port: int = int32()
    directory_id: bytes = uuid(tag=0)  # of its metadata log


@message(key=32002, versions="0", flexible="0+")
class JoinQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    leader_id: int = int32(default=-1)
    leader_host: str = string()
    leader_port: int = int32()
