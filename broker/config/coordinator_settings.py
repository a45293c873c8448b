"""The broker settings of the group and transaction coordinators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.broker.config.key import INT_MAX, Between, OneOf, Scope, boolean, integer, listing, long, short, string
from tidemark.broker.config.observability_settings import ObservabilitySettings

# What a topic can be created with: with any other value no coordinator would ever be found.
SEGMENT_BYTES: Final = Between(1 << 20)
INTERNAL_PARTITIONS: Final = Between(1, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CoordinatorSettings(ObservabilitySettings):
    # Groups, and the topic that holds what they committed.
    offsets_topic_num_partitions: int = integer(
        50, "How many partitions the topic __consumer_offsets is created with.", check=INTERNAL_PARTITIONS
    )
    offsets_topic_replication_factor: int = short(
        3,
        "How many replicas the topic __consumer_offsets is created with; fewer if there are fewer brokers.",
        check=Between(1),
    )
    offsets_topic_segment_bytes: int = integer(
        104_857_600, "The segment.bytes that the topic __consumer_offsets is created with.", check=SEGMENT_BYTES
    )
    offsets_topic_compression_codec: int = integer(
        0,
        "The number of the codec that records of the topic __consumer_offsets are compressed with; 0 is none.",
        idle="they are not compressed",
    )
    offsets_load_buffer_size: int = integer(
        5_242_880,
        "How many bytes of the topic __consumer_offsets are read at once when a coordinator loads its groups.",
        check=Between(1),
    )
    offsets_commit_timeout_ms: int = integer(
        5_000,
        "How many milliseconds an offset commit may wait for its replicas.",
        check=Between(1),
        idle="a commit waits until its replicas have it or its coordinator moves",
    )
    offsets_retention_minutes: int = integer(
        10_080,
        "How many minutes after its last member left, or after its last commit if it has no members, a"
        " group's committed offsets are forgotten; those of topics that it no longer subscribes to likewise.",
        check=Between(1),
    )
    offsets_retention_check_interval_ms: int = long(
        600_000,
        "How many milliseconds the broker waits between two searches for offsets that"
        " offsets.retention.minutes no longer keeps.",
        check=Between(1),
    )
    offset_metadata_max_bytes: int = integer(
        4_096, "How many bytes of metadata a client may attach to a committed offset.", check=Between(0)
    )
    group_initial_rebalance_delay_ms: int = integer(
        3_000,
        "How many milliseconds the first member of an empty classic group waits for others to join before"
        " partitions are assigned. With 0 it waits only for members that are known to be on their way.",
        check=Between(0),
    )
    group_min_session_timeout_ms: int = integer(
        6_000,
        "The shortest session time-out in milliseconds that a member of a classic group may ask for.",
        check=Between(0),
    )
    group_max_session_timeout_ms: int = integer(
        1_800_000,
        "The longest session time-out in milliseconds that a member of a classic group may ask for.",
        check=Between(0),
    )
    group_max_size: int = integer(
        INT_MAX, "How many members a classic group may have; further ones are refused.", check=Between(1)
    )
    group_consumer_session_timeout_ms: int = integer(
        45_000,
        "How many milliseconds a member of a consumer group may go without a heartbeat before it is taken out"
        " of the group; a group may set its own consumer.session.timeout.ms.",
        check=Between(1),
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45_000, "The smallest consumer.session.timeout.ms in milliseconds that a group may be given.", check=Between(1)
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60_000, "The largest consumer.session.timeout.ms in milliseconds that a group may be given.", check=Between(1)
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5_000,
        "How many milliseconds the members of a consumer group wait between two heartbeats; a"
        " group may set its own consumer.heartbeat.interval.ms.",
        check=Between(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5_000,
        "The smallest consumer.heartbeat.interval.ms in milliseconds that a group may be given.",
        check=Between(1),
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15_000,
        "The largest consumer.heartbeat.interval.ms in milliseconds that a group may be given.",
        check=Between(1),
    )
    group_consumer_max_size: int = integer(
        INT_MAX, "How many members a consumer group may have; further ones are refused.", check=Between(1)
    )
    group_consumer_assignors: tuple[str, ...] = listing(
        ("uniform", "range"),
        "The assignors that members of a consumer group may choose from; the first is used when they do not choose.",
        check=OneOf(("uniform", "range")),
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Whether a group that has members may change its protocol: from classic to consumer (upgrade), from"
        " consumer to classic (downgrade), both (bidirectional) or neither (disabled).",
        check=OneOf(("upgrade", "downgrade", "bidirectional", "disabled")),
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        600_000,
        "How many milliseconds pass until the regular expressions that consumer groups subscribe with are evaluated"
        " again though no topic has changed: with an authorizer, what a member may describe can change as well.",
        check=Between(10_000),
    )

    # Transactions.
    transaction_state_log_num_partitions: int = integer(
        50, "How many partitions the topic __transaction_state is created with.", check=INTERNAL_PARTITIONS
    )
    transaction_state_log_replication_factor: int = short(
        3,
        "How many replicas the topic __transaction_state is created with; fewer if there are fewer brokers.",
        check=Between(1),
    )
    transaction_state_log_min_isr: int = integer(
        2,
        "The min.insync.replicas that the topic __transaction_state is created with; less if there are fewer brokers.",
        check=Between(1),
    )
    transaction_state_log_segment_bytes: int = integer(
        104_857_600, "The segment.bytes that the topic __transaction_state is created with.", check=SEGMENT_BYTES
    )
    transaction_state_log_load_buffer_size: int = integer(
        5_242_880,
        "How many bytes of the topic __transaction_state are read at once when a coordinator loads its transactions.",
        check=Between(1),
    )
    transaction_max_timeout_ms: int = integer(
        900_000, "The longest transaction time-out in milliseconds that a producer may ask for.", check=Between(1)
    )
    transactional_id_expiration_ms: int = integer(
        604_800_000,
        "How many milliseconds after its last transaction a transactional id is forgotten.",
        check=Between(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000,
        "How many milliseconds the coordinator waits between two searches for transactional ids that"
        " transactional.id.expiration.ms no longer keeps.",
        check=Between(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000,
        "How many milliseconds the coordinator waits between two searches for transactions that have run"
        " longer than their time-out; it aborts them.",
        check=Between(1),
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Whether the broker asks the transaction coordinator if a partition belongs to the transaction before"
        " it takes a transactional write. Producers that use transactions version 2 are always checked.",
        scope=Scope.CLUSTER_WIDE,
    )
