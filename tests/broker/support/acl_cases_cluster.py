"""What is asked for about transactions, settings and the cluster, and the rights that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acl_cases_clients import create_topic_request
from acl_table import (
    ABSENT,
    ACTION,
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TXN,
    WRITE,
    Right,
    World,
    add,
    on_cluster,
    on_group,
    on_topic,
    on_txn,
)

from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_partition_reassignments,
    list_transactions,
    remove_raft_voter,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)

# -- transactions --------------------------------------------------------


def _init_idempotent(_world: World) -> Any:
    return init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)


add("InitProducerId", 4, _init_idempotent, on_cluster(IDEMPOTENT_WRITE))
add("InitProducerId by the right to write somewhere", 4, _init_idempotent, on_topic(WRITE))
add(
    "InitProducerId of a transaction",
    4,
    lambda _: init_producer_id.InitProducerIdRequest(
        transactional_id=TXN, transaction_timeout_ms=60000, producer_id=4711, producer_epoch=3
    ),
    on_txn(WRITE),
)


def _add_partitions(*names: str) -> Any:
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TXN,
        v3_and_below_producer_id=4711,
        v3_and_below_producer_epoch=3,
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names
        ],
    )


add("AddPartitionsToTxn", 3, lambda _: _add_partitions(TOPIC), on_txn(WRITE), on_topic(WRITE))
add(
    "AddPartitionsToTxn of two topics",
    3,
    lambda _: _add_partitions(TOPIC, ABSENT),
    on_topic(WRITE),
    on_txn(WRITE),
    on_topic(WRITE, ABSENT),
)
add(
    "AddPartitionsToTxn of brokers",
    4,
    lambda _: add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=[
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=TXN,
                producer_id=4711,
                producer_epoch=3,
                verify_only=True,
                topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
            )
        ]
    ),
    on_cluster(ACTION),
)
add(
    "AddOffsetsToTxn",
    3,
    lambda _: add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=TXN, producer_id=4711, producer_epoch=3, group_id=GROUP
    ),
    on_txn(WRITE),
    on_group(READ),
)
add(
    "EndTxn",
    3,
    lambda _: end_txn.EndTxnRequest(transactional_id=TXN, producer_id=4711, producer_epoch=3),
    on_txn(WRITE),
)


def _txn_commit(name: str) -> Any:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, partitions=[partition])
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=TXN, group_id=GROUP, producer_id=4711, producer_epoch=3, topics=[topic]
    )


add("TxnOffsetCommit", 3, lambda _: _txn_commit(TOPIC), on_txn(WRITE), on_group(READ), on_topic(READ))


def _write_markers(_world: World) -> Any:
    topic = write_txn_markers.WritableTxnMarkerTopic(name=ABSENT, partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(producer_id=4711, producer_epoch=3, topics=[topic])
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


add("WriteTxnMarkers", 1, _write_markers, on_cluster(ACTION))
add("WriteTxnMarkers by the right to alter", 1, _write_markers, on_cluster(ALTER))
add(
    "DescribeTransactions",
    0,
    lambda _: describe_transactions.DescribeTransactionsRequest(transactional_ids=[TXN]),
    on_txn(DESCRIBE),
)
add("ListTransactions", 0, lambda _: list_transactions.ListTransactionsRequest(), on_txn(DESCRIBE))

# -- settings ------------------------------------------------------------

CONFIGS = {TOPIC: 2, ABSENT: 2, "": 4, GROUP: 32}


def _describe_configs(name: str, kind: int) -> Any:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=["none"]
    )
    return describe_configs.DescribeConfigsRequest(resources=[resource])


def _altering(request: Any, resource: Any) -> Callable[[str, int], Any]:
    def alter(name: str, kind: int) -> Any:
        return request(resources=[resource(resource_type=kind, resource_name=name)], validate_only=True)

    return alter


_alter_configs = _altering(alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResource)
_incremental = _altering(
    incremental_alter_configs.IncrementalAlterConfigsRequest, incremental_alter_configs.AlterConfigsResource
)


def _config_right(operation: AclOperation, name: str, kind: int) -> Right:
    kinds = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}
    return (operation, kinds[kind], name) if kind in kinds else on_cluster(operation)


def _config_cases(name: str, kind: int) -> None:
    label = name or "all brokers"
    describing, altering = (_config_right(right, name, kind) for right in (DESCRIBE_CONFIGS, ALTER_CONFIGS))
    add(f"DescribeConfigs of {label}", 4, lambda _: _describe_configs(name, kind), describing)
    add(f"AlterConfigs of {label}", 2, lambda _: _alter_configs(name, kind), altering)
    add(f"IncrementalAlterConfigs of {label}", 1, lambda _: _incremental(name, kind), altering)


for config_name, config_kind in CONFIGS.items():
    _config_cases(config_name, config_kind)

# -- the cluster ---------------------------------------------------------


def _filter(kind: Any, **fields: Any) -> Any:
    return kind(
        resource_type_filter=2,
        resource_name_filter="nothing",
        pattern_type_filter=3,
        operation=1,
        permission_type=1,
        **fields,
    )


add("DescribeAcls", 3, lambda _: _filter(describe_acls.DescribeAclsRequest), on_cluster(DESCRIBE))
add(
    "CreateAcls",
    3,
    lambda _: create_acls.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=2,
                resource_name="",
                resource_pattern_type=3,
                principal="User:nobody",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    ),
    on_cluster(ALTER),
)
add(
    "DeleteAcls",
    3,
    lambda _: delete_acls.DeleteAclsRequest(filters=[_filter(delete_acls.DeleteAclsFilter)]),
    on_cluster(ALTER),
)
add("DescribeLogDirs", 4, lambda _: describe_log_dirs.DescribeLogDirsRequest(topics=[]), on_cluster(DESCRIBE))
add("DescribeLogDirs of old", 2, lambda _: describe_log_dirs.DescribeLogDirsRequest(topics=[]), on_cluster(DESCRIBE))
add(
    "AlterReplicaLogDirs",
    2,
    lambda _: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=[
            alter_replica_log_dirs.AlterReplicaLogDir(
                path="/nowhere", topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name=ABSENT, partitions=[0])]
            )
        ]
    ),
    on_cluster(ALTER),
)
add("DescribeQuorum", 1, lambda _: describe_quorum.DescribeQuorumRequest(topics=[]), on_cluster(DESCRIBE))
add(
    "ElectLeaders",
    2,
    lambda _: elect_leaders.ElectLeadersRequest(
        topic_partitions=[elect_leaders.TopicPartitions(topic=ABSENT, partitions=[0])], timeout_ms=5000
    ),
    on_cluster(ALTER),
)
add(
    "AlterPartitionReassignments",
    0,
    lambda _: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[
            alter_partition_reassignments.ReassignableTopic(
                name=ABSENT,
                partitions=[alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=None)],
            )
        ],
        timeout_ms=5000,
    ),
    on_cluster(ALTER),
)
add(
    "ListPartitionReassignments",
    0,
    lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000),
    on_cluster(DESCRIBE),
)
add(
    "DescribeClientQuotas",
    1,
    lambda _: describe_client_quotas.DescribeClientQuotasRequest(components=[]),
    on_cluster(DESCRIBE_CONFIGS),
)
add(
    "AlterClientQuotas",
    1,
    lambda _: alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.AlterationData(
                entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="nobody")],
                ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9)],
            )
        ],
        validate_only=True,
    ),
    on_cluster(ALTER_CONFIGS),
)
add(
    "DescribeUserScramCredentials",
    0,
    lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
        users=[describe_user_scram_credentials.UserName(name="nobody")]
    ),
    on_cluster(DESCRIBE),
)
add(
    "AlterUserScramCredentials",
    0,
    lambda _: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=1)]
    ),
    on_cluster(ALTER),
)
add(
    "UpdateFeatures",
    1,
    lambda _: update_features.UpdateFeaturesRequest(feature_updates=[], timeout_ms=5000, validate_only=True),
    on_cluster(ALTER),
)
add("UnregisterBroker", 0, lambda _: unregister_broker.UnregisterBrokerRequest(broker_id=4711), on_cluster(ALTER))
add(
    "ListConfigResources",
    1,
    lambda _: list_config_resources.ListConfigResourcesRequest(resource_types=[16]),
    on_cluster(DESCRIBE_CONFIGS),
)
add(
    "AddRaftVoter",
    0,
    lambda _: add_raft_voter.AddRaftVoterRequest(cluster_id="another", timeout_ms=1000, voter_id=4711),
    on_cluster(ALTER),
)
add(
    "RemoveRaftVoter",
    0,
    lambda _: remove_raft_voter.RemoveRaftVoterRequest(cluster_id="another", voter_id=4711),
    on_cluster(ALTER),
)

# -- what nodes say to each other ----------------------------------------

UNKNOWN_NODE = {"broker_id": 4711, "broker_epoch": 1}


def _of_a_node(name: str, version: int, request: Callable[..., Any], **fields: Any) -> None:
    add(name, version, lambda _: request(**UNKNOWN_NODE, **fields), on_cluster(ACTION), on_controller=True)


_of_a_node("AllocateProducerIds", 0, allocate_producer_ids.AllocateProducerIdsRequest)
_of_a_node("AlterPartition", 2, alter_partition.AlterPartitionRequest, topics=[])
_of_a_node("AssignReplicasToDirs", 0, assign_replicas_to_dirs.AssignReplicasToDirsRequest)
_of_a_node("BrokerHeartbeat", 1, broker_heartbeat.BrokerHeartbeatRequest)
add(
    "BrokerRegistration",
    3,
    lambda _: broker_registration.BrokerRegistrationRequest(
        broker_id=4711, cluster_id="another", incarnation_id=b"x" * 16
    ),
    on_cluster(ACTION),
    on_controller=True,
)
add(
    "CreateTopics at the controller",
    7,
    lambda _: create_topic_request(ABSENT),
    on_topic(CREATE, ABSENT),
    on_controller=True,
)
