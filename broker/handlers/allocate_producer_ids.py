"""AllocateProducerIds: a block of producer ids for one broker, never given twice."""

from __future__ import annotations

from broker.errors import Refused
from broker.metadata.isr import check_sender
from broker.metadata.store import MetadataStore
from broker.producer_ids import BLOCK, reserve
from broker.registry import Call, handles
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


@handles(AllocateProducerIdsRequest, AllocateProducerIdsResponse)
async def allocate_producer_ids(
    request: AllocateProducerIdsRequest, _call: Call, *, store: MetadataStore
) -> AllocateProducerIdsResponse:
    try:
        check_sender(store.image, broker_id=request.broker_id, broker_epoch=request.broker_epoch)
        start = await reserve(store)
    except Refused as refusal:
        return AllocateProducerIdsResponse(error_code=refusal.code)
    return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK)
