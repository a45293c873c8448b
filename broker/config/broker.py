"""Every broker setting: Kafka's names and meanings, and Kafka 4.3's defaults except where a comment says why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from tidemark.broker.config.errors import ConfigError, did_you_mean
from tidemark.broker.config.key import (
    INT_MAX,
    LONG_MAX,
    Between,
    Key,
    OneOf,
    Scope,
    boolean,
    integer,
    keys_of,
    listing,
    long,
    short,
    string,
)
from tidemark.broker.config.listeners import (
    Listener,
    Voter,
    advertised_listeners,
    client_listeners,
    controller_listener,
    server_addresses,
    voter_addresses,
)
from tidemark.broker.config.topic import TOPIC_KEYS, TopicConfig

UNSET: Any = object()
NO_THROTTLE = "replicas do not move between log directories yet"
NO_REPLICATION = "replication is not served yet"
_TOPIC_FIELDS = {f.name.replace("_", "."): f.metadata["key"] for f in fields(TopicConfig)}


def default_of(topic_key: str, *, default: Any = UNSET, unit: str | None = None, **rest: Any) -> Any:
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
    return field(default=key.default, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BrokerConfig:
    """The settings of one broker, typed. Make one with `load_config`."""

    # Who this node is, and where it can be reached.
    node_id: int = integer(0, "The id of this node, unique in its cluster.", check=Between(0), kafka_default="none")
    broker_id: int = integer(-1, "An older name of node.id, used when that is not set.")
    cluster_id: str | None = string(
        None,
        "The id to give a new cluster; chosen at random when not set. Ours: Kafka takes it when it formats a disk.",
    )
    process_roles: tuple[str, ...] = listing(
        ("broker", "controller"),
        "What this node does. It must include broker; a node that is a broker only has no vote in the quorum.",
        check=OneOf(("broker", "controller")),
        kafka_default="none",
    )
    broker_rack: str | None = string(None, "The rack of this node, told to clients that like to read nearby.")
    # Kafka listens on every interface; a broker without authentication should not do that unasked.
    listeners: tuple[str, ...] = listing(
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen, as NAME://host:port. An empty host means every interface, port 0 any free port.",
        scope=Scope.PER_BROKER,
        kafka_default="PLAINTEXT://:9092",
    )
    advertised_listeners: tuple[str, ...] | None = listing(
        None, "The addresses that clients are told, as NAME://host:port, when they differ from listeners."
    )
    listener_security_protocol_map: str = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, as NAME:PROTOCOL pairs. Only PLAINTEXT is served for now.",
        scope=Scope.PER_BROKER,
    )
    inter_broker_listener_name: str | None = string(
        None, "The listener that brokers use among themselves; the first of listeners if not set."
    )
    controller_listener_names: tuple[str, ...] = listing(
        (),
        "Which of the listeners is for the cluster's own traffic: the quorum, and brokers' requests to the controller."
        " Clients are not served there. A node without one is a cluster of its own.",
        kafka_default="none",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = listing(
        (),
        "Where a node that is not among controller.quorum.voters finds the quorum it joins, as host:port of controller"
        " listeners. It follows the metadata without a vote.",
    )
    controller_quorum_voters: tuple[str, ...] = listing(
        (),
        "The nodes that a new cluster's quorum begins with, as id@host:port of their controller listeners; the same on"
        " all of them. Later changes are made with AddRaftVoter and RemoveRaftVoter.",
    )
    controller_quorum_election_timeout_ms: int = integer(
        1_000,
        "How long the quorum waits for a silent leader before it elects another, or up to twice as long. A leader"
        " whose connections close is not waited for.",
        check=Between(100),
    )

    # Being part of a cluster.
    broker_heartbeat_interval_ms: int = integer(
        2_000,
        "How often a broker tells the controller that it is alive; at least six times per lease, which is a third of"
        " broker.session.timeout.ms, at any rate.",
        check=Between(1),
    )
    broker_session_timeout_ms: int = integer(
        9_000,
        "A broker whose heartbeats are missing for so long is fenced: others lead in its place, and it serves nothing"
        " until it is heard again. One that gives no other sign of life either is fenced after half of it, one whose"
        " process has ended at once. The same on all nodes.",
        check=Between(1),
    )
    initial_broker_registration_timeout_ms: int = integer(
        60_000, "How long a broker that starts tries to register before it gives up.", check=Between(1)
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, "Give partitions back to their preferred leader, regularly, once it is in sync again."
    )
    leader_imbalance_check_interval_seconds: int = long(300, "How often.", check=Between(1))

    # Connections and requests.
    # Kafka's 50 overflows when a thousand clients come back at once, and each that is dropped tries again a second on.
    socket_listen_backlog_size: int = integer(
        1024, "How many connections may wait to be accepted; the system may cap it.", check=Between(1)
    )
    # Kafka fixes both at 100 KiB; Linux tunes them by itself, and a larger one lets sendfile do more per call.
    socket_send_buffer_bytes: int = integer(
        -1, "The send buffer of a connection (SO_SNDBUF); -1 leaves it to the system.", check=Between(-1)
    )
    socket_receive_buffer_bytes: int = integer(
        -1, "The receive buffer of a connection (SO_RCVBUF); -1 leaves it to the system.", check=Between(-1)
    )
    socket_request_max_bytes: int = integer(
        104_857_600, "The largest request; a connection that announces a larger one is closed.", check=Between(1)
    )
    queued_max_requests: int = integer(
        500,
        "How many requests may wait before the broker stops reading from clients.",
        check=Between(1),
        idle="each connection has a limit of its own, and queued.max.request.bytes bounds all of them",
    )
    # Kafka sets no limit; a broker whose memory a flood of requests can fill is not one to leave alone.
    queued_max_request_bytes: int = long(
        256 << 20,
        "How many bytes of requests may wait before the broker stops reading from clients; -1 sets no limit.",
        kafka_default="-1",
    )
    connections_max_idle_ms: int = long(
        600_000, "Close a connection that has been silent this long; a negative value never does."
    )
    max_connections: int = integer(
        INT_MAX, "How many connections the broker holds at once.", check=Between(0), scope=Scope.CLUSTER_WIDE
    )
    max_connections_per_ip: int = integer(
        INT_MAX,
        "How many connections one address may hold; 0 admits only the addresses in max.connections.per.ip.overrides.",
        check=Between(0),
        scope=Scope.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: str = string(
        "",
        "Other limits for some addresses or host names, as address:count pairs with commas between.",
        scope=Scope.CLUSTER_WIDE,
    )
    fetch_max_bytes: int = integer(
        57_671_680, "The most that one fetch answer holds, whatever the client asks for.", check=Between(1024)
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "How many incremental fetch sessions the broker remembers.", check=Between(0)
    )
    max_request_partition_size_limit: int = integer(
        2000, "How many partitions one DescribeTopicPartitions answer holds.", check=Between(1)
    )
    request_timeout_ms: int = integer(
        30_000, "How long a request of this broker to another may take.", idle=NO_REPLICATION
    )

    # Topics.
    auto_create_topics_enable: bool = boolean(
        True, "Create a topic when a client first names it, if the client agrees."
    )
    delete_topic_enable: bool = boolean(True, "Allow topics to be deleted.")
    num_partitions: int = integer(1, "How many partitions a topic gets that does not say.", check=Between(1))
    default_replication_factor: int = integer(
        1, "How many replicas the partitions of a topic get that does not say.", check=Between(1)
    )

    # Where data lives, and the work on it that no topic setting governs.
    log_dir: tuple[str, ...] | None = listing(
        None, "Where data is kept, when log.dirs is not set.", kafka_default="/tmp/kafka-logs"
    )
    log_dirs: tuple[str, ...] = listing(
        ("./data",),
        "The directories that hold the partitions. A relative path starts at the working directory.",
        kafka_default="none",
    )
    metadata_log_dir: str | None = string(
        None, "Where the cluster's metadata is kept; the first of log.dirs if not set."
    )
    num_recovery_threads_per_data_dir: int = integer(
        2,
        "How many threads check one data directory after an unclean stop.",
        check=Between(1),
        scope=Scope.CLUSTER_WIDE,
        idle="one thread does it",
    )
    log_retention_check_interval_ms: int = long(
        300_000, "How often segments are checked for retention.", check=Between(1)
    )
    log_flush_scheduler_interval_ms: int = long(LONG_MAX, "How often logs are checked for being due a sync.")
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often the offset up to which each log is synced is written down.", check=Between(0)
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often the start offset of each log is written down.", check=Between(0)
    )
    log_initial_task_delay_ms: int = long(
        30_000, "How long after its start the broker first runs such periodic work.", check=Between(0), internal=True
    )
    log_cleaner_enable: bool = boolean(True, "Run the log cleaner.", idle="compaction is not served yet")
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000, "How often the high watermark of each partition is written down."
    )
    replica_lag_time_max_ms: int = long(
        30_000, "A follower that has not caught up for this long leaves the in-sync set."
    )

    # Producers.
    producer_id_expiration_ms: int = integer(
        86_400_000,
        "Forget an idempotent producer's sequence numbers when it has written nothing for this long.",
        check=Between(1),
        scope=Scope.CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600_000, "How often producers are checked for that.", check=Between(1), internal=True
    )

    # Groups, and the topic that holds what they committed.
    offsets_topic_num_partitions: int = integer(
        50, "How many partitions __consumer_offsets is created with.", check=Between(1)
    )
    offsets_topic_replication_factor: int = short(
        3, "How many replicas it is created with; fewer where there are not so many brokers.", check=Between(1)
    )
    offsets_topic_segment_bytes: int = integer(104_857_600, "The segment.bytes it is created with.", check=Between(1))
    offsets_topic_compression_codec: int = integer(
        0, "The codec that the coordinator compresses its records with: 0 none.", idle="they are not compressed"
    )
    offsets_load_buffer_size: int = integer(
        5_242_880, "How many bytes of it are read at once when groups are loaded.", check=Between(1)
    )
    offsets_commit_timeout_ms: int = integer(
        5_000, "How long a commit may wait for its replicas.", check=Between(1), idle=NO_REPLICATION
    )
    offsets_retention_minutes: int = integer(
        10_080,
        "Forget what a group committed this long after its last member left, or after the last commit where there"
        " are no members; and of topics it no longer subscribes to.",
        check=Between(1),
    )
    offsets_retention_check_interval_ms: int = long(600_000, "How often that is looked for.", check=Between(1))
    offset_metadata_max_bytes: int = integer(4_096, "The longest metadata that a commit may carry.", check=Between(0))
    group_initial_rebalance_delay_ms: int = integer(
        3_000,
        "How long the first member of a classic group waits for others to join. With 0 it waits only where others are"
        " seen coming, and no longer than they do.",
        check=Between(0),
    )
    group_min_session_timeout_ms: int = integer(
        6_000, "The shortest session time-out that a member of a classic group may ask for.", check=Between(0)
    )
    group_max_session_timeout_ms: int = integer(1_800_000, "And the longest.", check=Between(0))
    group_max_size: int = integer(INT_MAX, "How many members a classic group may have.", check=Between(1))
    group_consumer_session_timeout_ms: int = integer(
        45_000, "How long a member of a consumer group may be silent.", check=Between(1)
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45_000, "The shortest such time that a group may be given.", check=Between(1)
    )
    group_consumer_max_session_timeout_ms: int = integer(60_000, "And the longest.", check=Between(1))
    group_consumer_heartbeat_interval_ms: int = integer(
        5_000, "How often a member of a consumer group sends a heartbeat.", check=Between(1)
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5_000, "The shortest such interval that a group may be given.", check=Between(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(15_000, "And the longest.", check=Between(1))
    group_consumer_max_size: int = integer(INT_MAX, "How many members a consumer group may have.", check=Between(1))
    group_consumer_assignors: tuple[str, ...] = listing(
        ("uniform", "range"),
        "The assignors that a consumer group may use; the first is the default.",
        check=OneOf(("uniform", "range")),
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Which groups may change their protocol while they have members: from classic to consumer (upgrade), back"
        " (downgrade), both, or none.",
        check=OneOf(("upgrade", "downgrade", "bidirectional", "disabled")),
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        600_000, "How often the topics that a regular expression names are looked for anew.", check=Between(10_000)
    )

    # Transactions.
    transaction_state_log_num_partitions: int = integer(
        50, "How many partitions __transaction_state is created with.", check=Between(1)
    )
    transaction_state_log_replication_factor: int = short(
        3, "How many replicas it is created with; fewer where there are not so many brokers.", check=Between(1)
    )
    transaction_state_log_min_isr: int = integer(
        2, "The min.insync.replicas it is created with; fewer where there are not so many brokers.", check=Between(1)
    )
    transaction_state_log_segment_bytes: int = integer(
        104_857_600, "The segment.bytes it is created with.", check=Between(1)
    )
    transaction_state_log_load_buffer_size: int = integer(
        5_242_880, "How many bytes of it are read at once when transactions are loaded.", check=Between(1)
    )
    transaction_max_timeout_ms: int = integer(
        900_000, "The longest time-out that a producer may give its transactions.", check=Between(1)
    )
    transactional_id_expiration_ms: int = integer(
        604_800_000, "Forget a transactional id that has begun or ended nothing for so long.", check=Between(1)
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "How often that is looked for.", check=Between(1)
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "How often transactions are looked for that have timed out; they are aborted.", check=Between(1)
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Ask the coordinator whether a partition is in the transaction before a producer that says so may write to it."
        " Producers that use transactions version 2 are always checked.",
        scope=Scope.CLUSTER_WIDE,
    )

    # Replication.
    replica_fetch_max_bytes: int = integer(
        1_048_576, "How much of one partition a follower fetches at once; a larger batch too.", check=Between(0)
    )
    replica_fetch_response_max_bytes: int = integer(
        10_485_760, "How much a follower fetches at once of all partitions together.", check=Between(0)
    )
    replica_fetch_min_bytes: int = integer(1, "A leader waits for so much before it answers a follower.")
    replica_fetch_wait_max_ms: int = integer(500, "But it answers after so long.")
    replica_fetch_backoff_ms: int = integer(
        1_000, "How long a follower waits, at most, before it tries again what failed.", check=Between(0)
    )
    replica_socket_timeout_ms: int = integer(30_000, "How long a follower waits for an answer.")
    replica_selector_class: str | None = string(
        None,
        "Who chooses the replica that a consumer reads from (KIP-392): Kafka's RackAwareReplicaSelector sends it to one"
        " in its own rack. Without: to the leader.",
    )

    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        "Bytes per second to followers that are not in sync, of partitions that"
        " leader.replication.throttled.replicas lists.",
        scope=Scope.PER_BROKER,
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX,
        "Bytes per second from leaders, of replicas that follower.replication.throttled.replicas lists, while they are"
        " not in sync.",
        scope=Scope.PER_BROKER,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX, "Bytes per second between the log directories of a broker.", scope=Scope.PER_BROKER, idle=NO_THROTTLE
    )

    # Shutdown.
    controlled_shutdown_enable: bool = boolean(True, "Hand leadership to other brokers before stopping.")

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
        168, "As log.retention.ms, in hours, when neither that nor log.retention.minutes is set."
    )
    log_retention_minutes: int | None = integer(None, "As log.retention.ms, in minutes, when that is not set.")
    log_retention_ms: int | None = default_of("retention.ms", default=None)
    log_roll_hours: int = integer(168, "As log.roll.ms, in hours, when that is not set.", check=Between(1))
    log_roll_jitter_hours: int = integer(0, "As log.roll.jitter.ms, in hours, when that is not set.", check=Between(0))
    log_roll_jitter_ms: int | None = default_of("segment.jitter.ms", default=None)
    log_roll_ms: int | None = default_of("segment.ms", default=None)
    log_segment_bytes: int = default_of("segment.bytes")
    log_segment_delete_delay_ms: int = default_of("file.delete.delay.ms")
    message_max_bytes: int = default_of("max.message.bytes")
    min_insync_replicas: int = default_of("min.insync.replicas")
    unclean_leader_election_enable: bool = default_of("unclean.leader.election.enable")

    explicit: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the user set (file and overrides), by Kafka name, as written."""
    warnings: tuple[str, ...] = ()
    """What the user should know about the configuration, one sentence each."""
    _topic_defaults: TopicConfig | None = field(default=None, init=False)

    @property
    def topic_defaults(self) -> TopicConfig:
        """The settings of topics that override nothing. Asked for thousands of times in a row, so it is kept."""
        if self._topic_defaults is None:
            object.__setattr__(self, "_topic_defaults", TopicConfig.inherit(self))
        assert self._topic_defaults is not None
        return self._topic_defaults

    @property
    def parsed_listeners(self) -> tuple[Listener, ...]:
        """The listeners to open for clients."""
        return client_listeners(
            self.listeners, protocols=self.listener_security_protocol_map, without=self.controller_listener_names
        )

    @property
    def parsed_advertised_listeners(self) -> tuple[Listener, ...]:
        """The addresses to tell clients, by listener name; port 0 stands for the port that was bound."""
        return advertised_listeners(
            self.advertised_listeners,
            opened=self.parsed_listeners,
            protocols=self.listener_security_protocol_map,
            without=self.controller_listener_names,
        )

    @property
    def parsed_controller_listener(self) -> Listener | None:
        """The listener for the cluster's own traffic; without one the node is a cluster of its own."""
        return controller_listener(
            self.listeners, protocols=self.listener_security_protocol_map, names=self.controller_listener_names
        )

    @property
    def parsed_controller_voters(self) -> tuple[Voter, ...]:
        return voter_addresses(self.controller_quorum_voters)

    @property
    def parsed_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        return server_addresses("controller.quorum.bootstrap.servers", self.controller_quorum_bootstrap_servers)

    @property
    def parsed_inter_broker_listener_name(self) -> str:
        names = [listener.name for listener in self.parsed_listeners]
        wanted = (self.inter_broker_listener_name or names[0]).upper()
        if wanted not in names:
            raise ConfigError(
                f"inter.broker.listener.name: {wanted} is not among the listeners {', '.join(names)}.",
                key="inter.broker.listener.name",
                value=self.inter_broker_listener_name,
            )
        return wanted

    @property
    def parsed_max_connections_per_ip_overrides(self) -> Mapping[str, int]:
        """The limits of single addresses or host names."""
        return parse_connection_limits(self.max_connections_per_ip_overrides)

    def with_values(self, changes: Mapping[str, str]) -> BrokerConfig:
        """This configuration with some dynamic settings changed; `explicit` still says what was set at the start."""
        for name in changes:
            validate_broker_config(name, changes[name])
        values: dict[str, Any] = {KEYS[name].attribute: KEYS[name].parse(text) for name, text in changes.items()}
        changed = replace(self, **values)
        changed.check()
        return changed

    def check(self) -> None:
        """Raise a ConfigError for settings that are fine alone and wrong together."""
        for name, items in (("listeners", self.listeners), ("log.dirs", self.log_dirs)):
            if not items or not all(items):
                raise ConfigError(f"{name}: it must name at least one, and none may be empty.", key=name)
        if "broker" not in self.process_roles:
            raise ConfigError("process.roles: it must include broker.", key="process.roles")
        _ = self.parsed_advertised_listeners, self.parsed_max_connections_per_ip_overrides
        _ = self.parsed_controller_listener, self.parsed_bootstrap_servers, self.parsed_inter_broker_listener_name
        others = [voter for voter in self.parsed_controller_voters if voter.node_id != self.node_id]
        if others and self.parsed_controller_listener is None:
            raise ConfigError(
                "controller.quorum.voters: it names other nodes, but no listener of this one is among"
                " controller.listener.names.",
                key="controller.quorum.voters",
            )


KEYS: Mapping[str, Key] = keys_of(BrokerConfig)


def broker_key(name: str) -> Key:
    """The broker setting of that name, or a ConfigError."""
    try:
        return KEYS[name]
    except KeyError:
        pass
    if name in TOPIC_KEYS and TOPIC_KEYS[name].synonyms:
        hint = f"; {name} belongs to topics, and the broker's default for it is {TOPIC_KEYS[name].synonyms[0].name}"
    else:
        hint = did_you_mean(name, KEYS)
    raise ConfigError(f"{name}: there is no such broker setting{hint}.", key=name)


def validate_broker_config(name: str, value: str, *, for_one_broker: bool = True) -> None:
    """Raise a ConfigError unless this setting may be given to a running broker, or else to all of them at once."""
    key = broker_key(name)
    if key.read_only:
        raise ConfigError(f"{name}: it cannot be changed while the broker runs.", key=name, value=value)
    if key.scope is Scope.PER_BROKER and not for_one_broker:
        raise ConfigError(f"{name}: it can be set for one broker only, not for the cluster.", key=name, value=value)
    key.parse(value)


def parse_connection_limits(text: str) -> Mapping[str, int]:
    """address:count pairs, as max.connections.per.ip.overrides has them."""
    limits: dict[str, int] = {}
    for pair in filter(None, (item.strip() for item in text.split(","))):
        address, _, count = pair.rpartition(":")
        if not address or not count.isdecimal():
            raise ConfigError(
                f"max.connections.per.ip.overrides: {pair!r} is not allowed; it must be address:count.",
                key="max.connections.per.ip.overrides",
                value=text,
            )
        limits[address.strip("[]")] = int(count)
    return limits
