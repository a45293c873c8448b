"""RaftMessage (key 32000, our own): one message of the metadata quorum, from node to node. It has no answer."""

from __future__ import annotations

from tidemark.protocol.schema import blob, int32, message, string, uuid


@message(key=32000, versions="0", flexible="0+", listeners="controller")
class RaftMessageRequest:
    sender: int = int32()
    data: bytes = blob()
    # Tags, so that a Tidemark from before them reads the message, too. What is not known is empty or zero.
    cluster_id: str = string(tag=0)
    sender_directory_id: bytes = uuid(tag=1)
    receiver_directory_id: bytes = uuid(tag=2)  # as the sender's configuration has it


@message(key=32000, versions="0", flexible="0+")
class RaftMessageResponse:
    """Never sent."""
