"""Forwarded (our own): a request that a client sent to a broker, for the controller to answer."""

from __future__ import annotations

from tidemark.broker.cluster.forwarding import Forwarding
from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.messages.forwarded import ForwardedRequest, ForwardedResponse


@handles(ForwardedRequest, ForwardedResponse)
async def forwarded(request: ForwardedRequest, _call: Call, *, forwarding: Forwarding) -> ForwardedResponse:
    return await forwarding.answer(request)
