"""What a topic's settings ask of a batch, and how they change it. The common case costs a few comparisons.

`relaxed` (tidemark.produce.validation) believes the header, and looks at records only where a setting or a suspicious
timestamp asks for it; `strict` looks at the records of every batch (`examination`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.broker.config import TopicConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.replication.examination import Examination, MustWait, Placed, expanded_bytes_max
from tidemark.protocol.compression import CODEC_NAMES, ZSTD
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import BatchHeader, read_header, stamp_append_time

NO_TIMESTAMP: Final = -1
TRANSACTIONAL: Final = 0x10  # a batch header's attributes
CONTROL: Final = 0x20
_CODECS: Final[dict[str, int | None]] = {
    **{name: codec for codec, name in enumerate(CODEC_NAMES)},
    "uncompressed": 0,
    "producer": None,
}
_ANY_TIME: Final = (-(1 << 64), 1 << 64)


class BatchRules:
    """Compiled from a topic's settings when they change, so that a batch is measured against plain numbers."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_bytes_max",
        "_plain",
        "codec",
        "compacts",
        "examines_all",
        "expanded_bytes_max",
        "stamps",
    )

    def __init__(self, config: TopicConfig) -> None:
        self._bytes_max = config.max_message_bytes
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self.stamps = config.message_timestamp_type == "LogAppendTime"
        self.codec = _CODECS[config.compression_type]  # None: whichever it comes in
        self.compacts = "compact" in config.cleanup_policy
        self.expanded_bytes_max = expanded_bytes_max(config.max_message_bytes)
        self.examines_all = self.compacts or config.tidemark_produce_validation == "strict"
        self._plain = not (self.stamps or self.codec is not None or self.examines_all)

    def validated(
        self,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        refused: int = CONTROL | TRANSACTIONAL,
        at_once: bool = True,
    ) -> Placed:
        """The batch to append, which is the one given unless the topic wants it changed; MustWait if that cannot be
        said at once, or should not. `refused` names attributes that it must not have."""
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
        if attributes & 0x0F > ZSTD:
            raise _bad_attributes(header)
        if self._plain:
            base_timestamp = header.base_timestamp
            if header.max_timestamp - now_ms > self._after_max_ms or (
                now_ms - base_timestamp > self._before_max_ms and base_timestamp != NO_TIMESTAMP
            ):
                return self._examined(batch, header, now_ms, at_once)  # its records may be better than that
            return batch, header
        if self.examines_all or (self.codec is not None and header.compression != self.codec):
            return self._examined(batch, header, now_ms, at_once)
        if self.stamps:
            return self.stamped(batch, now_ms)
        return self._timely(batch, header, now_ms, at_once)

    def _timely(self, batch: memoryview, header: BatchHeader, now_ms: int, at_once: bool) -> Placed:
        base_timestamp = header.base_timestamp
        if header.max_timestamp - now_ms > self._after_max_ms or (
            now_ms - base_timestamp > self._before_max_ms and base_timestamp != NO_TIMESTAMP
        ):
            return self._examined(batch, header, now_ms, at_once)
        return batch, header

    def _examined(self, batch: memoryview, header: BatchHeader, now_ms: int, at_once: bool) -> Placed:
        examination = Examination(self, batch, header, now_ms)
        if not at_once:
            raise MustWait(examination)
        return examination.at_once()

    # -- for an examination ------------------------------------------------

    def timestamp_bounds(self, now_ms: int) -> tuple[int, int]:
        return _ANY_TIME if self.stamps else (now_ms - self._before_max_ms, now_ms + self._after_max_ms)

    def untimely(self, now_ms: int, record_indexes: Sequence[int]) -> Refused:
        return Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"A timestamp is too far from the broker's time, {now_ms}: at most {self._before_max_ms} ms before "
            f"and {self._after_max_ms} ms after it are allowed.",
            record_indexes=record_indexes,
        )

    def check_size(self, size: int) -> None:
        if size > self._bytes_max:
            raise _too_large(size, self._bytes_max)

    def stamped(self, batch: memoryview, now_ms: int) -> Placed:
        stamp_append_time(batch, 0, timestamp=now_ms)
        return batch, read_header(batch)


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
