"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730)."""

from __future__ import annotations

from tidemark.protocol.schema import int16, int32, int64, message


@message(key=67, versions="0", flexible="0+", listeners="controller")
class AllocateProducerIdsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
