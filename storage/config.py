"""What a topic's configuration means to its logs. Names and defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass

_DAY_MS = 24 * 60 * 60 * 1000
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS  # -1: no limit
    retention_bytes: int = -1  # -1: no limit
    flush_messages: int = _NEVER
    flush_ms: int = _NEVER
    file_delete_delay_ms: int = 60_000
    compact: bool = False
    delete: bool = True
    producer_id_expiration_ms: int = _DAY_MS
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _NEVER

    @property
    def roll_ms(self) -> int:
        """How long a segment is written to: what must be compacted by then has to be inactive before."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= 0x7FFFFFFF:
            # Index entries hold positions as int32: a larger segment could not be indexed.
            raise ValueError(f"segment_bytes must be in 1..2147483647, not {self.segment_bytes}")
        if self.index_interval_bytes < 0:
            raise ValueError(f"index_interval_bytes must not be negative, but is {self.index_interval_bytes}")
        if self.segment_index_bytes < 12:
            raise ValueError(f"segment_index_bytes must hold an entry (12 bytes), not {self.segment_index_bytes}")
