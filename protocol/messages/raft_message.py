"""RaftMessage (key 32000, our own): one message of the metadata quorum, from node to node. It has no answer."""

from __future__ import annotations

from tidemark.protocol.schema import blob, int32, message


@message(key=32000, versions="0", flexible="0+", listeners="controller")
class RaftMessageRequest:
    sender: int = int32()
    data: bytes = blob()


@message(key=32000, versions="0", flexible="0+")
class RaftMessageResponse:
    """Never sent."""
