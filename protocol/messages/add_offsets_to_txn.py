"""AddOffsetsToTxn (key 25): a transaction is going to commit offsets of a group."""

from __future__ import annotations

from tidemark.protocol.schema import int16, int32, int64, message, string


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
