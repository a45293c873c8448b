"""AllocateProducerIds: a block of producer ids for one broker, never given twice (KIP-730).

Asked by brokers of the controller. The broker must name its current epoch.
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.isr import check_sender
from tidemark.broker.metadata.producer_ids import BLOCK, reserve
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


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
