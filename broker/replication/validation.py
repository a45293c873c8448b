"""What a topic's settings ask of a batch, and how they change it. The common case costs a few comparisons."""

from __future__ import annotations

from typing import Final

from tidemark.broker.config import TopicConfig
from tidemark.broker.core.errors import Refused
from tidemark.protocol.compression import CODEC_NAMES, ZSTD
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import (
    BatchHeader,
    check_batch,
    iter_records,
    keyless_records,
    recompress,
    stamp_append_time,
)

NO_TIMESTAMP: Final = -1
TRANSACTIONAL: Final = 0x10  # a batch header's attributes
CONTROL: Final = 0x20
_CODECS: Final[dict[str, int | None]] = {
    **{name: codec for codec, name in enumerate(CODEC_NAMES)},
    "uncompressed": 0,
    "producer": None,
}


class BatchRules:
    """Compiled from a topic's settings when they change, so that a batch is measured against plain numbers."""

    __slots__ = ("_after_max_ms", "_append_time", "_before_max_ms", "_bytes_max", "_codec", "_compact", "_plain")

    def __init__(self, config: TopicConfig) -> None:
        self._bytes_max = config.max_message_bytes
        self._append_time = config.message_timestamp_type == "LogAppendTime"
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._codec = _CODECS[config.compression_type]
        self._compact = "compact" in config.cleanup_policy
        self._plain = not (self._append_time or self._codec is not None or self._compact)

    def validated(
        self, batch: memoryview, header: BatchHeader, now_ms: int, refused: int = CONTROL | TRANSACTIONAL
    ) -> tuple[memoryview, BatchHeader]:
        """The batch to append, which is the one given unless the topic wants it changed. `refused` names attributes
        that it must not have."""
        size = 12 + header.batch_length
        if size != len(batch):
            raise Refused(ErrorCode.INVALID_RECORD, "A produce request must hold exactly one batch per partition.")
        if size > self._bytes_max:
            raise _too_large(size, self._bytes_max)
        if header.base_offset:
            raise Refused(ErrorCode.INVALID_RECORD, "The offsets of a produced batch must start at 0.")
        attributes = header.attributes
        if attributes & refused:
            raise _not_plain(header)
        if not self._append_time and header.max_timestamp - now_ms > self._after_max_ms:
            raise self._bad_timestamp(batch, now_ms)
        if self._plain:
            if attributes & 0x0F > ZSTD:
                raise _bad_attributes(header)
            base_timestamp = header.base_timestamp
            if base_timestamp != NO_TIMESTAMP and now_ms - base_timestamp > self._before_max_ms:
                raise self._bad_timestamp(batch, now_ms)
            return batch, header
        return self._change(batch, header, now_ms)

    def _change(self, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[memoryview, BatchHeader]:
        if header.compression > ZSTD:
            raise _bad_attributes(header)
        if self._compact and (keyless := keyless_records(batch)):
            message = "A compacted topic takes no record without a key."
            raise Refused(ErrorCode.INVALID_RECORD, message, record_indexes=keyless)
        if self._codec is not None and header.compression != self._codec:
            batch = memoryview(recompress(batch, self._codec))
            header = check_batch(batch)
            if header.size > self._bytes_max:
                raise _too_large(header.size, self._bytes_max)
        if self._append_time:
            stamp_append_time(batch, 0, timestamp=now_ms)
            header = check_batch(batch)
        return batch, header

    def _bad_timestamp(self, batch: memoryview, now_ms: int) -> Refused:
        earliest, latest = now_ms - self._before_max_ms, now_ms + self._after_max_ms
        records = iter_records(batch)
        bad = [index for index, each in enumerate(records) if not earliest <= each.timestamp <= latest]
        return Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"A timestamp is too far from the broker's time, {now_ms}: at most {self._before_max_ms} ms before "
            f"and {self._after_max_ms} ms after it are allowed.",
            record_indexes=bad,
        )


def _too_large(size: int, limit: int) -> Refused:
    return Refused(ErrorCode.MESSAGE_TOO_LARGE, f"The batch is {size} bytes; max.message.bytes allows {limit}.")


def _bad_attributes(header: BatchHeader) -> Refused:
    if header.compression > ZSTD:
        return Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {header.compression}.")
    return Refused(ErrorCode.INVALID_TIMESTAMP, "A producer may not set the log-append-time bit.")


def _not_plain(header: BatchHeader) -> Refused:
    if header.is_control:
        return Refused(ErrorCode.INVALID_RECORD, "A client may not write control batches.")
    message = "A transactional batch must come with its transactional id."
    return Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
