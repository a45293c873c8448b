"""UnregisterBroker: forget a broker that will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.errors import Refused
from broker.metadata.brokers import unregister
from broker.metadata.store import MetadataStore
from broker.registry import Call, handles
from broker.settings import Settings
from protocol.errors import ErrorCode
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from broker.quorum import Quorum


@handles(UnregisterBrokerRequest, UnregisterBrokerResponse, on_controller=True)
async def unregister_broker(
    request: UnregisterBrokerRequest,
    _call: Call,
    *,
    store: MetadataStore,
    settings: Settings,
    quorum: Quorum | None,
) -> UnregisterBrokerResponse:
    try:
        await store.change(lambda image: unregister(image, request.broker_id, settings.current))
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return UnregisterBrokerResponse(error_code=refusal.code, error_message=refusal.message)
    if quorum is not None:
        await quorum.forget(request.broker_id)
    return UnregisterBrokerResponse()
