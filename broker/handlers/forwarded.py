"""Forwarded (our own; Envelope in Kafka, KIP-590): a client's request to a broker, for the controller to answer.

It carries the request's body with its key and version, who sent it (principal and address, as the broker has
authenticated them) and through which listener; the answer is the body for the client. Only nodes may send one: whoever
can is taken for whom they say. The answer names what the controller had applied, and the broker waits for that.

v0: the only one; who asks came later, as tagged fields
"""

from __future__ import annotations

from tidemark.broker.cluster.forwarding import Forwarding
from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.messages.forwarded import ForwardedRequest, ForwardedResponse


@handles(ForwardedRequest, ForwardedResponse)
async def forwarded(request: ForwardedRequest, _call: Call, *, forwarding: Forwarding) -> ForwardedResponse:
    return await forwarding.answer(request)
