"""The APIs that this broker serves: the versions it tells clients, and the module in handlers/ that answers.

A handler is loaded when its API is first asked for, or by and by after the start: a broker that starts in a fraction of
a second reads this table instead of a hundred modules. Registering a handler checks that it and its line here agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.protocol.schema import Span, span


class Served(NamedTuple):
    name: str
    versions: Span
    module: str


def _table(*lines: tuple[int, str, str, str]) -> Mapping[int, Served]:
    return {key: Served(name, span(versions), module) for key, name, versions, module in lines}


SERVED: Final = _table(
    (0, "Produce", "0-13", "produce"),
    (1, "Fetch", "4-18", "fetch"),
    (2, "ListOffsets", "1-11", "list_offsets"),
    (3, "Metadata", "0-13", "metadata"),
    (8, "OffsetCommit", "2-10", "offsets"),
    (9, "OffsetFetch", "1-10", "offsets"),
    (10, "FindCoordinator", "0-6", "find_coordinator"),
    (11, "JoinGroup", "0-9", "join_group"),
    (12, "Heartbeat", "0-4", "heartbeat"),
    (13, "LeaveGroup", "0-5", "leave_group"),
    (14, "SyncGroup", "0-5", "sync_group"),
    (15, "DescribeGroups", "0-6", "groups"),
    (16, "ListGroups", "0-5", "groups"),
    (18, "ApiVersions", "0-4", "api_versions"),
    (19, "CreateTopics", "2-7", "topics"),
    (20, "DeleteTopics", "1-6", "topics"),
    (21, "DeleteRecords", "0-2", "delete_records"),
    (22, "InitProducerId", "0-5", "producers"),
    (23, "OffsetForLeaderEpoch", "2-4", "offset_for_leader_epoch"),
    (24, "AddPartitionsToTxn", "0-5", "add_partitions_to_txn"),
    (25, "AddOffsetsToTxn", "0-4", "add_offsets_to_txn"),
    (26, "EndTxn", "0-5", "end_txn"),
    (27, "WriteTxnMarkers", "1-2", "write_txn_markers"),
    (28, "TxnOffsetCommit", "0-5", "txn_offset_commit"),
    (32, "DescribeConfigs", "1-4", "configs"),
    (33, "AlterConfigs", "0-2", "configs"),
    (35, "DescribeLogDirs", "1-5", "describe_log_dirs"),
    (37, "CreatePartitions", "0-3", "topics"),
    (42, "DeleteGroups", "0-2", "groups"),
    (43, "ElectLeaders", "0-2", "elect_leaders"),
    (44, "IncrementalAlterConfigs", "0-1", "configs"),
    (45, "AlterPartitionReassignments", "0-1", "reassignments"),
    (46, "ListPartitionReassignments", "0", "reassignments"),
    (47, "OffsetDelete", "0", "offsets"),
    (55, "DescribeQuorum", "0-2", "quorum"),
    (57, "UpdateFeatures", "0-2", "update_features"),
    (60, "DescribeCluster", "0-2", "describe_cluster"),
    (61, "DescribeProducers", "0", "producers"),
    (64, "UnregisterBroker", "0", "unregister_broker"),
    (65, "DescribeTransactions", "0", "transactions"),
    (66, "ListTransactions", "0-2", "transactions"),
    (68, "ConsumerGroupHeartbeat", "0-1", "consumer_group_heartbeat"),
    (69, "ConsumerGroupDescribe", "0-1", "consumer_group_describe"),
    (74, "ListConfigResources", "0-1", "configs"),
    (75, "DescribeTopicPartitions", "0", "describe_topic_partitions"),
    (80, "AddRaftVoter", "0-1", "quorum"),
    (81, "RemoveRaftVoter", "0", "quorum"),
)

# What nodes ask of the controller, on its own listener. From 32000 on these are ours, and nobody is told of them.
BETWEEN_NODES: Final = _table(
    (56, "AlterPartition", "2-3", "alter_partition"),
    (62, "BrokerRegistration", "0-4", "broker_registration"),
    (63, "BrokerHeartbeat", "0-1", "broker_heartbeat"),
    (67, "AllocateProducerIds", "0", "allocate_producer_ids"),
    (32000, "RaftMessage", "0", "between_nodes"),
    (32001, "Forwarded", "0", "between_nodes"),
    (32002, "JoinQuorum", "0", "between_nodes"),
)
FIRST_PRIVATE: Final = 32000

# KIP-919: tools may ask the controllers directly.
_ALSO_FOR_TOOLS: Final = (18, 19, 20, 32, 33, 37, 43, 44, 45, 46, 55, 57, 60, 64, 80, 81)
SERVED_BY_CONTROLLER: Final = {**{key: SERVED[key] for key in _ALSO_FOR_TOOLS}, **BETWEEN_NODES}
