"""EndTxn (key 26): commit or abort. From version 5 the answer names the producer's next epoch (KIP-890)."""

from __future__ import annotations

from tidemark.protocol.schema import boolean, int16, int32, int64, message, string


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
