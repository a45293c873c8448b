"""Every topic setting, and the settings of one topic after its overrides and the broker's defaults are applied.

All keys of Kafka 4.3 are here with Kafka's bounds, so that a legal CreateTopics never fails; `idle` says which of them
change nothing yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.broker.config.errors import ConfigError, did_you_mean
from tidemark.broker.config.key import (
    LONG_MAX,
    Between,
    Key,
    OneOf,
    Scope,
    Synonym,
    ThrottledReplicas,
    Value,
    boolean,
    double,
    integer,
    keys_of,
    listing,
    long,
    string,
)

if TYPE_CHECKING:
    from tidemark.broker.config.broker import BrokerConfig

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

NO_TIERING = "tiered storage is not served yet"
LEVEL_FIXED = "the codec's own default level is used"


def _broker(name: str) -> dict[str, Any]:
    return {"scope": Scope.TOPIC, "synonyms": (Synonym(name=name),)}


def _scaled(*names: tuple[str, int]) -> dict[str, Any]:
    return {"scope": Scope.TOPIC, "synonyms": tuple(Synonym(name=name, scale=scale) for name, scale in names)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TopicConfig:
    """The settings of one topic, resolved and typed."""

    cleanup_policy: Collection[str] = listing(
        ("delete",),
        "What happens to old data: delete removes whole segments by age and size, compact keeps the last"
        " record of every key. Both may be given; with neither, nothing is ever removed.",
        check=OneOf(("compact", "delete")),
        **_broker("log.cleanup.policy"),
    )
    compression_gzip_level: int = integer(
        -1,
        "The gzip level (1 to 9) when the broker compresses; -1 is the codec's own default.",
        check=Between(1, 9, also=(-1,)),
        idle=LEVEL_FIXED,
        **_broker("compression.gzip.level"),
    )
    compression_lz4_level: int = integer(
        9,
        "The lz4 level (1 to 17) when the broker compresses; higher is smaller and slower.",
        check=Between(1, 17),
        idle=LEVEL_FIXED,
        **_broker("compression.lz4.level"),
    )
    compression_type: str = string(
        "producer",
        "The codec that batches are stored in. producer keeps each batch as it was sent; with any other value"
        " the broker compresses again what came in another codec.",
        check=OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        **_broker("compression.type"),
    )
    compression_zstd_level: int = integer(
        3,
        "The zstd level when the broker compresses; higher is smaller and slower.",
        check=Between(-131072, 22),
        idle=LEVEL_FIXED,
        **_broker("compression.zstd.level"),
    )
    delete_retention_ms: int = long(
        DAY_MS,
        "How many milliseconds a compacted topic keeps a tombstone, which is the time that a reader has to"
        " see that a key was deleted.",
        check=Between(0),
        **_broker("log.cleaner.delete.retention.ms"),
    )
    file_delete_delay_ms: int = long(
        60_000,
        "How many milliseconds the files of a removed segment stay on disk before they are unlinked.",
        check=Between(0),
        **_broker("log.segment.delete.delay.ms"),
    )
    flush_messages: int = long(
        LONG_MAX,
        "How many records may be appended before the log is synced to disk. With 1 every acknowledgement"
        " waits for a sync; one sync serves all requests that wait for it.",
        check=Between(1),
        **_broker("log.flush.interval.messages"),
    )
    flush_ms: int = long(
        LONG_MAX,
        "How many milliseconds a record may wait before the log is synced to disk.",
        check=Between(0),
        **_scaled(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = listing(
        (),
        "The followers whose fetching is held to follower.replication.throttled.rate, as partition:broker"
        " pairs, or * for all.",
        check=ThrottledReplicas(),
        scope=Scope.TOPIC,
    )
    index_interval_bytes: int = integer(
        4096,
        "About how many bytes are appended between two entries of the offset index.",
        check=Between(0),
        **_broker("log.index.interval.bytes"),
    )
    internal_segment_bytes: int | None = integer(
        None,
        "A segment size in bytes that replaces segment.bytes and may be smaller than its lower bound, for tests.",
        check=Between(61),
        scope=Scope.TOPIC,
        internal=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = listing(
        (),
        "The leaders whose serving of followers is held to leader.replication.throttled.rate, as"
        " partition:broker pairs, or * for all.",
        check=ThrottledReplicas(),
        scope=Scope.TOPIC,
    )
    local_retention_bytes: int = long(
        -2,
        "How many bytes of a partition stay on local disk once they are in tiered storage; -2 means as many"
        " as retention.bytes.",
        check=Between(-2),
        idle=NO_TIERING,
        **_broker("log.local.retention.bytes"),
    )
    local_retention_ms: int = long(
        -2,
        "How many milliseconds data stays on local disk once it is in tiered storage; -2 means as long as"
        " retention.ms.",
        check=Between(-2),
        idle=NO_TIERING,
        **_broker("log.local.retention.ms"),
    )
    max_compaction_lag_ms: int = long(
        LONG_MAX,
        "How many milliseconds a record of a compacted topic may stay uncompacted at most.",
        check=Between(1),
        **_broker("log.cleaner.max.compaction.lag.ms"),
    )
    max_message_bytes: int = integer(
        1_048_588,
        "The size in bytes of the largest batch that is accepted, as sent (that is, after compression).",
        check=Between(0),
        **_broker("message.max.bytes"),
    )
    message_timestamp_after_max_ms: int = long(
        HOUR_MS,
        "How many milliseconds a record's timestamp may be ahead of the broker's clock, when"
        " message.timestamp.type is CreateTime; records further ahead are refused.",
        check=Between(0),
        **_broker("log.message.timestamp.after.max.ms"),
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "How many milliseconds a record's timestamp may be behind the broker's clock, when"
        " message.timestamp.type is CreateTime; records further behind are refused.",
        check=Between(0),
        **_broker("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "Whether a record carries the time that its producer gave it (CreateTime) or the time when the broker"
        " appended it (LogAppendTime).",
        check=OneOf(("CreateTime", "LogAppendTime")),
        **_broker("log.message.timestamp.type"),
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "The share of a compacted log that must be uncleaned before it is cleaned again.",
        check=Between(0, 1),
        **_broker("log.cleaner.min.cleanable.ratio"),
    )
    min_compaction_lag_ms: int = long(
        0,
        "How many milliseconds a record of a compacted topic stays uncompacted at least.",
        check=Between(0),
        **_broker("log.cleaner.min.compaction.lag.ms"),
    )
    min_insync_replicas: int = integer(
        1,
        "How many replicas must be in sync for a write with acks=all to be taken, and for the high watermark"
        " to advance. Where a partition has fewer replicas, all of them must be.",
        check=Between(1),
        **_broker("min.insync.replicas"),
    )
    preallocate: bool = boolean(
        False,
        "Whether a new segment's full size is reserved on disk when it is created.",
        idle="segments always grow as they are written",
        **_broker("log.preallocate"),
    )
    remote_log_copy_disable: bool = boolean(
        False, "Whether segments are no longer copied to tiered storage.", scope=Scope.TOPIC, idle=NO_TIERING
    )
    remote_log_delete_on_disable: bool = boolean(
        False,
        "Whether data in tiered storage is removed when tiered storage is switched off for the topic.",
        scope=Scope.TOPIC,
        idle=NO_TIERING,
    )
    remote_storage_enable: bool = boolean(
        False,
        "Whether old segments are kept in tiered storage. Only false is accepted for now.",
        scope=Scope.TOPIC,
        idle=NO_TIERING,
    )
    retention_bytes: int = long(
        -1,
        "How many bytes a partition may hold before its oldest segments are removed; -1 sets no limit.",
        **_broker("log.retention.bytes"),
    )
    retention_ms: int = long(
        7 * DAY_MS,
        "How many milliseconds after its newest record a segment is removed; -1 sets no limit.",
        check=Between(-1),
        **_scaled(("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    )
    segment_bytes: int = integer(
        1 << 30,
        "How many bytes a segment holds at most; the batch that would pass it starts a new one.",
        check=Between(1 << 20),
        **_broker("log.segment.bytes"),
    )
    segment_index_bytes: int = integer(
        10 << 20,
        "How many bytes the offset index of a segment holds at most; a full index starts a new segment.",
        check=Between(4),
        **_broker("log.index.size.max.bytes"),
    )
    segment_jitter_ms: int = long(
        0,
        "How many milliseconds, at most, are taken off segment.ms at random, so that not all partitions start"
        " a new segment at once.",
        check=Between(0),
        **_scaled(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_ms: int = long(
        7 * DAY_MS,
        "How many milliseconds after its first record a segment is closed and a new one started, however"
        " small, so that retention can reach its data.",
        check=Between(1),
        **_scaled(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    )
    tidemark_produce_validation: str = string(
        "relaxed",
        "What is checked of a produced batch. relaxed: its header and CRC, so that no record is looked at; a"
        " faulty producer can store what no consumer can read. strict: every record, as Kafka does, at a cost of"
        " about a microsecond each; see docs/validation.md. Tidemark's own setting.",
        check=OneOf(("relaxed", "strict")),
        **_broker("tidemark.produce.validation"),
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Whether a replica that is not in sync may become leader when no other is left, at the price of lost records.",
        **_broker("unclean.leader.election.enable"),
    )

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """The settings of a topic with these overrides on a broker with these (current) settings."""
        return cls._resolve(broker, overrides) if overrides else broker.topic_defaults

    @classmethod
    def inherit(cls, broker: BrokerConfig) -> TopicConfig:
        """The settings of a topic that overrides nothing. `BrokerConfig.topic_defaults` keeps them."""
        return cls._resolve(broker, {})

    @classmethod
    def _resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        values: dict[str, Any] = {
            key.attribute: topic_key(name).parse(overrides[name]) if name in overrides else inherited(key, broker)
            for name, key in TOPIC_KEYS.items()
        }
        values["cleanup_policy"] = frozenset(values["cleanup_policy"])
        if values["internal_segment_bytes"] is not None:
            values["segment_bytes"] = values["internal_segment_bytes"]
        return cls(**values)


TOPIC_KEYS: Mapping[str, Key] = keys_of(TopicConfig)


def inherited(key: Key, broker: BrokerConfig) -> Value:
    """The value that a topic which does not set `key` takes from the broker's settings."""
    for synonym in key.synonyms:
        value = getattr(broker, synonym.name.replace(".", "_"))
        if value is not None:
            return value if synonym.scale == 1 else _in_ms(value, scale=synonym.scale)
    return key.default


def topic_key(name: str) -> Key:
    """The topic setting of that name, or a ConfigError."""
    try:
        return TOPIC_KEYS[name]
    except KeyError:
        hint = did_you_mean(name, TOPIC_KEYS)
        raise ConfigError(f"{name}: there is no such topic setting{hint}.", key=name) from None


def validate_topic_config(name: str, value: str) -> None:
    """Raise a ConfigError unless a topic may be given this setting."""
    enabled = topic_key(name).parse(value)
    if name == "remote.storage.enable" and enabled:
        raise ConfigError(
            "remote.storage.enable: tiered storage is not served, so it must be false.", key=name, value=value
        )


def validate_topic_configs(overrides: Mapping[str, str], *, broker: BrokerConfig) -> None:
    """Raise a ConfigError unless a topic may have all these settings at once."""
    for name, value in overrides.items():
        validate_topic_config(name, value)
    resolved = TopicConfig.resolve(broker, overrides)
    if resolved.min_compaction_lag_ms > resolved.max_compaction_lag_ms:
        raise ConfigError(
            f"min.compaction.lag.ms: '{resolved.min_compaction_lag_ms}' is not allowed; it must be at most "
            f"max.compaction.lag.ms, which is {resolved.max_compaction_lag_ms}.",
            key="min.compaction.lag.ms",
            value=str(resolved.min_compaction_lag_ms),
        )


def _in_ms(value: int, *, scale: int) -> int:
    return value * scale if value >= 0 else -1  # any negative time means "no limit", in whatever unit it was given
