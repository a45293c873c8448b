"""What replication asks of the logs under it: their settings, and whether what they hold is whole."""

from __future__ import annotations

import os
from typing import Final

from tidemark.broker.config import BrokerConfig, TopicConfig
from tidemark.protocol.records import check_batch, iter_batches
from tidemark.storage import Log, LogConfig

CHECKED_BYTES_MAX: Final = 1 << 20


def log_config(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    return LogConfig(
        segment_bytes=topic.internal_segment_bytes or topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        compact="compact" in topic.cleanup_policy,
        delete="delete" in topic.cleanup_policy,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
    )


def check_records(log_on_disk: Log, offset: int) -> None:
    """Raises what is wrong with the batches at a place; a follower's fetch would get as many."""
    for part in log_on_disk.read(offset=offset, limit_bytes=CHECKED_BYTES_MAX, at_least_one=True):
        data = memoryview(os.pread(part.file.fileno(), part.length, part.position))
        for _, batch in iter_batches(data):
            check_batch(batch)
