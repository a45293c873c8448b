"""InitProducerId (key 22): hand out a producer id and epoch, for idempotence and transactions."""

from __future__ import annotations

from tidemark.protocol.schema import int16, int32, int64, message, string


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = string(nullable="0+", default=None)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
