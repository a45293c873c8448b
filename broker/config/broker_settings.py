"""Every broker setting: Kafka's names and meanings, and Kafka 4.3's defaults except where a comment says why not."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, cast

from tidemark.broker.config.key import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    Between,
    Key,
    OneOf,
    Scope,
    Value,
    boolean,
    double,
    integer,
    listing,
    long,
    string,
)
from tidemark.broker.config.quota_settings import QuotaSettings
from tidemark.broker.config.topic import TopicConfig

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
V = TypeVar("V", bound=Value)
UNSET: Any = object()
_TOPIC_FIELDS = {f.name.replace("_", "."): f.metadata["key"] for f in fields(TopicConfig)}


def default_of(topic_key: str, *, default: V = UNSET, unit: str | None = None, **rest: Any) -> V:
    """The broker setting that topics without `topic_key` take their value from: same type, bounds and meaning."""
    model: Key = _TOPIC_FIELDS[topic_key]
    doc = f"The `{topic_key}` of topics that do not set their own" + (f", in {unit}. " if unit else ". ") + model.doc
    key = replace(
        model,
        doc=doc,
        scope=rest.pop("scope", Scope.CLUSTER_WIDE),
        default=model.default if default is UNSET else default,
        synonyms=(),
        **rest,
    )
    return field(default=cast(V, key.default), metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BrokerSettings(QuotaSettings):
    # This node's identity, and where it can be reached.
    node_id: int = integer(0, "The id of this node, unique in its cluster.", check=Between(0), kafka_default="none")
    broker_id: int = integer(-1, "An older name of node.id; its value is used when node.id is not set.")
    cluster_id: str | None = string(
        None,
        "The id that a new cluster is given; a random one is chosen when this is not set. Tidemark's own"
        " setting: in Kafka the id is given when the disks are formatted.",
    )
    process_roles: tuple[str, ...] = listing(
        ("broker", "controller"),
        "The roles of this node. They must include broker; a node without controller has no vote in the quorum.",
        check=OneOf(("broker", "controller")),
        kafka_default="none",
    )
    broker_rack: str | None = string(
        None,
        "The rack of this node. Replicas of a partition are spread over racks, and consumers with the same"
        " client.rack may read from this node (see replica.selector.class).",
    )
    # Kafka listens on every interface; a broker without authentication should not do that unasked.
    listeners: tuple[str, ...] = listing(
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses that the broker listens on, as NAME://host:port. An empty host means every interface,"
        " port 0 any free port.",
        kafka_default="PLAINTEXT://:9092",
    )
    advertised_listeners: tuple[str, ...] | None = listing(
        None, "The addresses that clients connect to, as NAME://host:port; those of listeners when not set."
    )
    listener_security_protocol_map: str = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, as NAME:PROTOCOL pairs with commas between.",
    )
    inter_broker_listener_name: str | None = string(
        None, "The name of the listener that brokers use to reach each other; the first of listeners when not set."
    )
    security_inter_broker_protocol: str | None = string(
        None,
        "The protocol that brokers use among themselves: the listener of that name is theirs. It is an older way to"
        " say what inter.broker.listener.name says, and only one of the two may be set.",
        check=OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        kafka_default="PLAINTEXT",
    )
    controller_listener_names: tuple[str, ...] = listing(
        (),
        "The name of the listener for the cluster's own traffic: the quorum, and brokers' requests to the"
        " controller. Clients are not served on it. A node without such a listener is a cluster of its own.",
        kafka_default="none",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = listing(
        (),
        "The addresses, as host:port of controller listeners, where a node that is not among"
        " controller.quorum.voters finds the quorum to join. It follows the metadata without a vote.",
    )
    controller_quorum_voters: tuple[str, ...] = listing(
        (),
        "The voters that the quorum of a new cluster starts with, as id@host:port of their controller"
        " listeners; the same list on all of them. Once the cluster runs, voters are changed with AddRaftVoter"
        " and RemoveRaftVoter.",
    )
    controller_quorum_election_timeout_ms: int = integer(
        1_000,
        "How many milliseconds a member of the quorum waits for a silent leader before it starts an election;"
        " each time a random value between this and twice as long. An election starts at once when the"
        " leader's connections close.",
        check=Between(100),
    )

    # Who may do what (docs/authorization.md).
    authorizer_class_name: str = string(
        "",
        "Set it to org.apache.kafka.metadata.authorizer.StandardAuthorizer, and clients may do only what access"
        " control entries allow. The name means Tidemark's own authorizer, which decides as that one does. Without"
        " it everybody may do everything.",
        check=OneOf(("", STANDARD_AUTHORIZER)),
    )
    super_users: str = string(
        "",
        "Principals that may do everything, whatever the entries say, as User:name with semicolons between. The"
        " nodes' own principals belong here.",
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everybody may use a resource that no access control entry is about."
    )
    tidemark_audit_allowed: bool = boolean(
        False, "Whether the audit log tells what was allowed, too, and not only what was denied. It costs throughput."
    )
    tidemark_audit_file: str | None = string(
        None, "The file that the audit log is written to, a JSON object a line; without it, to the broker's log."
    )

    # Being part of a cluster.
    broker_heartbeat_interval_ms: int = integer(
        2_000,
        "How many milliseconds a broker waits between two heartbeats to the controller. It never waits longer"
        " than a sixth of its lease, which is a third of broker.session.timeout.ms.",
        check=Between(1),
    )
    broker_session_timeout_ms: int = integer(
        9_000,
        "How many milliseconds a broker's heartbeats may be missing before the controller fences it: other"
        " brokers then lead its partitions, and it serves nothing until it is heard from again. A broker that"
        " gives no other sign of life either is fenced after half of this, one whose process has ended at"
        " once. It must be the same on all nodes.",
        check=Between(1),
    )
    initial_broker_registration_timeout_ms: int = integer(
        60_000,
        "How many milliseconds a starting broker tries to register with the controller before it gives up and stops.",
        check=Between(1),
    )
    auto_leader_rebalance_enable: bool = boolean(
        True,
        "Whether the controller regularly gives partitions back to their preferred leader once that is in sync again.",
    )
    leader_imbalance_check_interval_seconds: int = long(
        300,
        "How many seconds the controller waits between two checks for partitions that are not led by their"
        " preferred leader (see auto.leader.rebalance.enable).",
        check=Between(1),
    )

    # Connections and requests.
    # Kafka's 50 overflows when a thousand clients come back at once, and each that is dropped tries again a second on.
    socket_listen_backlog_size: int = integer(
        1024,
        "How many connections may wait to be accepted on a listener; the operating system may allow fewer.",
        check=Between(1),
    )
    # Kafka fixes both at 100 KiB; Linux tunes them by itself, and a larger one lets sendfile do more per call.
    socket_send_buffer_bytes: int = integer(
        -1,
        "The size in bytes of a connection's send buffer (SO_SNDBUF); -1 leaves it to the operating system.",
        check=Between(-1),
    )
    socket_receive_buffer_bytes: int = integer(
        -1,
        "The size in bytes of a connection's receive buffer (SO_RCVBUF); -1 leaves it to the operating system.",
        check=Between(-1),
    )
    socket_request_max_bytes: int = integer(
        104_857_600,
        "The size in bytes of the largest request; a connection that announces a larger one is closed.",
        check=Between(1),
    )
    queued_max_requests: int = integer(
        500,
        "How many requests may wait to be handled before the broker stops reading from clients.",
        check=Between(1),
        idle="each connection has a limit of its own, and queued.max.request.bytes bounds all of them",
    )
    # Kafka sets no limit; a broker whose memory a flood of requests can fill is not one to leave alone.
    queued_max_request_bytes: int = long(
        256 << 20,
        "How many bytes of requests may wait to be handled before the broker stops reading from clients; -1"
        " sets no limit.",
        kafka_default="-1",
    )
    connections_max_idle_ms: int = long(
        600_000,
        "How many milliseconds a connection may be silent before the broker closes it; a negative value never"
        " closes it.",
    )
    max_connections: int = integer(
        INT_MAX,
        "How many connections the broker holds at once; further ones are closed.",
        check=Between(0),
        scope=Scope.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = integer(
        INT_MAX,
        "How many connections one address may hold at once; further ones are closed. With 0 only the"
        " addresses in max.connections.per.ip.overrides may connect.",
        check=Between(0),
        scope=Scope.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: str = string(
        "",
        "Limits that replace max.connections.per.ip for some addresses or host names, as address:count pairs"
        " with commas between.",
        scope=Scope.CLUSTER_WIDE,
    )
    fetch_max_bytes: int = integer(
        57_671_680,
        "How many bytes of records one Fetch answer holds at most, even if the client asks for more.",
        check=Between(1024),
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000,
        "How many incremental fetch sessions the broker keeps; when there are more, the ones used least recently end.",
        check=Between(0),
    )
    max_request_partition_size_limit: int = integer(
        2000,
        "How many partitions one DescribeTopicPartitions answer lists at most; the client asks again for the rest.",
        check=Between(1),
    )
    request_timeout_ms: int = integer(
        30_000,
        "How many milliseconds a request of this broker to the controller may take when it creates a topic"
        " for a client.",
    )

    # Topics.
    auto_create_topics_enable: bool = boolean(
        True, "Whether a topic that does not exist is created when a client asks for its metadata and allows it."
    )
    delete_topic_enable: bool = boolean(True, "Whether topics may be deleted. If not, DeleteTopics is refused.")
    num_partitions: int = integer(
        1, "How many partitions a new topic gets when its creator does not say.", check=Between(1)
    )
    default_replication_factor: int = integer(
        1, "How many replicas the partitions of a new topic get when its creator does not say.", check=Between(1)
    )

    # Where data lives, and the work on it that no topic setting governs.
    log_dir: tuple[str, ...] | None = listing(
        None, "The directories that hold the data, when log.dirs is not set.", kafka_default="/tmp/kafka-logs"
    )
    log_dirs: tuple[str, ...] = listing(
        ("./data",),
        "The directories that hold the data, with commas between. A relative path starts at the working directory.",
        kafka_default="none",
    )
    metadata_log_dir: str | None = string(
        None, "The directory that holds the cluster's metadata; the first of log.dirs when not set."
    )
    num_recovery_threads_per_data_dir: int = integer(
        2,
        "How many threads open the logs of one data directory at a start, and check them after an unclean stop.",
        check=Between(1),
        scope=Scope.CLUSTER_WIDE,
    )
    log_retention_check_interval_ms: int = long(
        300_000,
        "How many milliseconds the broker waits between two searches for segments that retention.ms or"
        " retention.bytes no longer keeps.",
        check=Between(1),
    )
    log_flush_scheduler_interval_ms: int = long(
        LONG_MAX,
        "The flush.ms of topics that do not set their own, in milliseconds, when log.flush.interval.ms is not"
        " set either.",
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000,
        "How many milliseconds the broker waits between two writes of the recovery points, from which logs"
        " are checked after an unclean stop.",
        check=Between(0),
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000,
        "How many milliseconds the broker waits between two writes of the logs' start offsets, below which"
        " DeleteRecords or retention has removed the records.",
        check=Between(0),
    )
    log_initial_task_delay_ms: int = long(
        30_000,
        "How many milliseconds after its start the broker first applies retention and writes checkpoints.",
        check=Between(0),
        internal=True,
    )
    log_cleaner_enable: bool = boolean(
        True,
        "Whether the log cleaner runs, which compacts topics whose cleanup.policy says so.",
    )
    log_cleaner_threads: int = integer(
        1,
        "How many logs are compacted at a time, each by a process of its own.",
        check=Between(0),
        scope=Scope.CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = long(
        15_000,
        "How many milliseconds the log cleaner waits when there is nothing to clean.",
        check=Between(0),
        scope=Scope.CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 << 20,
        "How many bytes all cleanings together may use to remember keys, at 30 bytes for each. A log with more"
        " keys than fit is cleaned in several turns.",
        check=Between(1 << 20),
        scope=Scope.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = double(
        0.9,
        "How full log.cleaner.dedupe.buffer.size may become. Fuller means fewer turns, and slower ones.",
        check=Between(0.01, 1),
        scope=Scope.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = integer(
        512 << 10,
        "How many bytes the cleaner reads and writes at a time.",
        check=Between(0),
        scope=Scope.CLUSTER_WIDE,
        idle="a cleaning works on windows of 4 MB",
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        DOUBLE_MAX,
        "How many bytes per second all cleanings together read and write at most. A cleaning under way keeps"
        " the rate that it began with.",
        check=Between(0.001),
        scope=Scope.CLUSTER_WIDE,
    )
    log_scrub_bytes_per_second: int = long(
        0,
        "How fast logs are read again in the background, to find what a disk has changed since it was written:"
        " batches, their order, and indexes. 0: not at all, as in Apache Kafka. Off unless asked for, since it reads"
        " everything there is: that is paid for on many rented disks, and a file system with checksums of its own"
        " does it anyway. One megabyte per second is 86 GB a day.",
        check=Between(0),
        scope=Scope.CLUSTER_WIDE,
    )
    log_scrub_interval_ms: int = long(
        24 * 60 * 60 * 1000,
        "How often a log is read again at most, where log.scrub.bytes.per.second is set.",
        check=Between(0),
        scope=Scope.CLUSTER_WIDE,
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000,
        "How many milliseconds the broker waits between two writes of the partitions' high watermarks.",
    )
    replica_lag_time_max_ms: int = long(
        30_000,
        "How many milliseconds a follower may go without having caught up with its leader before it is taken"
        " out of the in-sync replicas.",
    )

    # Producers.
    producer_id_expiration_ms: int = integer(
        86_400_000,
        "How many milliseconds after its last record an idempotent producer's sequence numbers are forgotten.",
        check=Between(1),
        scope=Scope.CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600_000,
        "How many milliseconds the broker waits between two searches for producers that"
        " producer.id.expiration.ms no longer keeps.",
        check=Between(1),
        internal=True,
    )

    # Replication.
    replica_fetch_max_bytes: int = integer(
        1_048_576,
        "How many bytes of one partition a follower fetches at once; a single batch may be larger.",
        check=Between(0),
    )
    replica_fetch_response_max_bytes: int = integer(
        10_485_760, "How many bytes of all partitions together a follower fetches at once.", check=Between(0)
    )
    replica_fetch_min_bytes: int = integer(
        1,
        "How many bytes a leader waits for before it answers a follower's fetch, for at most"
        " replica.fetch.wait.max.ms.",
    )
    replica_fetch_wait_max_ms: int = integer(
        500,
        "How many milliseconds a leader waits for replica.fetch.min.bytes before it answers a follower's"
        " fetch with what there is.",
    )
    replica_fetch_backoff_ms: int = integer(
        1_000,
        "How many milliseconds a follower waits at most before it fetches a partition again after an error.",
        check=Between(0),
    )
    replica_socket_timeout_ms: int = integer(
        30_000,
        "How many milliseconds a follower waits for the answer to a fetch before it closes the connection and"
        " opens another; replica.fetch.wait.max.ms comes on top.",
    )
    replica_selector_class: str | None = string(
        None,
        "How the replica is chosen that a consumer reads from (KIP-392). Kafka's RackAwareReplicaSelector"
        " chooses one in the consumer's rack; when not set, consumers read from the leader.",
    )

    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        "How many bytes per second this broker sends to followers that are not in sync, for the partitions"
        " that leader.replication.throttled.replicas lists.",
        scope=Scope.PER_BROKER,
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX,
        "How many bytes per second this broker fetches from leaders for the replicas that"
        " follower.replication.throttled.replicas lists, while they are not in sync.",
        scope=Scope.PER_BROKER,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX,
        "How many bytes per second are copied when replicas move between the log directories of this broker.",
        scope=Scope.PER_BROKER,
    )

    # Shutdown.
    controlled_shutdown_enable: bool = boolean(
        True, "Whether a broker that stops first hands its leaderships to other brokers."
    )

    # What topics inherit.
    compression_gzip_level: int = default_of("compression.gzip.level")
    compression_lz4_level: int = default_of("compression.lz4.level")
    compression_type: str = default_of("compression.type")
    compression_zstd_level: int = default_of("compression.zstd.level")
    log_cleaner_delete_retention_ms: int = default_of("delete.retention.ms")
    log_cleaner_max_compaction_lag_ms: int = default_of("max.compaction.lag.ms")
    log_cleaner_min_cleanable_ratio: float = default_of("min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = default_of("min.compaction.lag.ms")
    log_cleanup_policy: tuple[str, ...] = default_of("cleanup.policy")
    log_flush_interval_messages: int = default_of("flush.messages")
    log_flush_interval_ms: int | None = default_of("flush.ms", default=None)
    log_index_interval_bytes: int = default_of("index.interval.bytes")
    log_index_size_max_bytes: int = default_of("segment.index.bytes")
    log_local_retention_bytes: int = default_of("local.retention.bytes")
    log_local_retention_ms: int = default_of("local.retention.ms")
    log_message_timestamp_after_max_ms: int = default_of("message.timestamp.after.max.ms")
    log_message_timestamp_before_max_ms: int = default_of("message.timestamp.before.max.ms")
    log_message_timestamp_type: str = default_of("message.timestamp.type")
    log_preallocate: bool = default_of("preallocate")
    log_retention_bytes: int = default_of("retention.bytes")
    log_retention_hours: int = integer(
        168,
        "The retention.ms of topics that do not set their own, in hours, when neither log.retention.ms nor"
        " log.retention.minutes is set; a negative value sets no limit.",
    )
    log_retention_minutes: int | None = integer(
        None,
        "The retention.ms of topics that do not set their own, in minutes, when log.retention.ms is not set;"
        " a negative value sets no limit.",
    )
    log_retention_ms: int | None = default_of("retention.ms", default=None)
    log_roll_hours: int = integer(
        168,
        "The segment.ms of topics that do not set their own, in hours, when log.roll.ms is not set.",
        check=Between(1),
    )
    log_roll_jitter_hours: int = integer(
        0,
        "The segment.jitter.ms of topics that do not set their own, in hours, when log.roll.jitter.ms is not set.",
        check=Between(0),
    )
    log_roll_jitter_ms: int | None = default_of("segment.jitter.ms", default=None)
    log_roll_ms: int | None = default_of("segment.ms", default=None)
    log_segment_bytes: int = default_of("segment.bytes")
    log_segment_delete_delay_ms: int = default_of("file.delete.delay.ms")
    message_max_bytes: int = default_of("max.message.bytes")
    min_insync_replicas: int = default_of("min.insync.replicas")
    tidemark_produce_validation: str = default_of("tidemark.produce.validation")
    unclean_leader_election_enable: bool = default_of("unclean.leader.election.enable")
