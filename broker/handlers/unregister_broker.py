"""UnregisterBroker: forget a broker that will not come back (KIP-631).

It leaves every in-sync set and every lead, and the quorum's observers; partitions that have replicas on it keep them
until they are reassigned. If it is alive after all, it registers anew. BROKER_ID_NOT_REGISTERED if there is none. The
controller decides; other brokers forward the request to it.

v0: the only one, flexible (KIP-482)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import gathered
from tidemark.broker.metadata.brokers import unregister
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from tidemark.broker.cluster.quorum_membership import QuorumMembership


@handles(UnregisterBrokerRequest, UnregisterBrokerResponse, on_controller=True)
async def unregister_broker(
    request: UnregisterBrokerRequest,
    _call: Call,
    *,
    store: MetadataStore,
    settings: DynamicConfig,
    quorum: QuorumMembership | None,
) -> UnregisterBrokerResponse:
    try:
        await store.change(lambda image: gathered(unregister(image, request.broker_id, settings.current)))
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return UnregisterBrokerResponse(error_code=refusal.code, error_message=refusal.message)
    if quorum is not None:
        await quorum.remove_observer(request.broker_id)
    return UnregisterBrokerResponse()
