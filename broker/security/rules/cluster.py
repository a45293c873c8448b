"""APIs about the cluster as a whole, and those that only nodes may call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemark.broker.core.acl import CLUSTER_NAME, AclOperation, ResourceType
from tidemark.broker.core.errors import CloseConnection
from tidemark.broker.core.registry import Call
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.security.access import NOT_ASKED, Access
from tidemark.broker.security.rule import CLUSTER_FAILED, Narrowed, Rule, Verdict, for_cluster, refused, whole
from tidemark.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidemark.protocol.messages.describe_cluster import DescribeClusterRequest

CONTROLLERS: Final = 2


def describe_cluster(request: DescribeClusterRequest, access: Access, _call: Call) -> Verdict:
    """Everybody may know the brokers; the controllers, who may alter the cluster."""
    if request.endpoint_type == CONTROLLERS and not access.cluster(AclOperation.ALTER):
        return refused(request, access, CLUSTER_FAILED)
    return Narrowed(request, lambda response: cluster_operations(response, access))


def cluster_operations(response: Any, access: Access) -> Job[None]:
    """Leave in an answer what the client may do with the cluster: nothing, if it may not even describe it."""
    mask = response.cluster_authorized_operations
    if mask != NOT_ASKED:
        may_describe = access.cluster(AclOperation.DESCRIBE, quietly=True)
        response.cluster_authorized_operations = (
            access.of(mask, ResourceType.CLUSTER, CLUSTER_NAME) if may_describe else 0
        )
    return
    yield


def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, access: Access, _call: Call) -> Verdict:
    """Its answer has errors in each partition only."""
    if access.cluster(AclOperation.ALTER):
        return None
    topics = [topic for directory in request.dirs for topic in directory.topics]
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=CLUSTER_FAILED)
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def raft_message(_request: Any, access: Access, call: Call) -> None:
    """It has no answer that could tell."""
    if not access.cluster(AclOperation.CLUSTER_ACTION):
        raise CloseConnection(f"{call.connection.principal} sent a message of the quorum, and is no node")


def _may_write_markers(access: Access, _request: Any) -> bool:
    """Nodes, and (KIP-664) administrators."""
    return access.cluster(AclOperation.ALTER, quietly=True) or access.cluster(AclOperation.CLUSTER_ACTION)


RULES: Final[Mapping[str, Rule]] = {
    "DescribeCluster": describe_cluster,
    "DescribeQuorum": for_cluster(AclOperation.DESCRIBE),
    "DescribeLogDirs": for_cluster(AclOperation.DESCRIBE),
    "DescribeAcls": for_cluster(AclOperation.DESCRIBE),
    "CreateAcls": for_cluster(AclOperation.ALTER),
    "DeleteAcls": for_cluster(AclOperation.ALTER),
    "DescribeUserScramCredentials": for_cluster(AclOperation.DESCRIBE),
    "AlterUserScramCredentials": for_cluster(AclOperation.ALTER),
    "DescribeClientQuotas": for_cluster(AclOperation.DESCRIBE_CONFIGS),
    "AlterClientQuotas": for_cluster(AclOperation.ALTER_CONFIGS),
    "DescribeClientUsage": for_cluster(AclOperation.DESCRIBE_CONFIGS),
    "ListConfigResources": for_cluster(AclOperation.DESCRIBE_CONFIGS),
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "AlterPartitionReassignments": for_cluster(AclOperation.ALTER),
    "ListPartitionReassignments": for_cluster(AclOperation.DESCRIBE),
    "ElectLeaders": for_cluster(AclOperation.ALTER),
    "UpdateFeatures": for_cluster(AclOperation.ALTER),
    "UnregisterBroker": for_cluster(AclOperation.ALTER),
    "AddRaftVoter": for_cluster(AclOperation.ALTER),
    "RemoveRaftVoter": for_cluster(AclOperation.ALTER),
    "WriteTxnMarkers": whole(_may_write_markers, CLUSTER_FAILED),
    # What nodes say to each other.
    "AllocateProducerIds": for_cluster(AclOperation.CLUSTER_ACTION),
    "AlterPartition": for_cluster(AclOperation.CLUSTER_ACTION),
    "AssignReplicasToDirs": for_cluster(AclOperation.CLUSTER_ACTION),
    "BrokerHeartbeat": for_cluster(AclOperation.CLUSTER_ACTION),
    "BrokerRegistration": for_cluster(AclOperation.CLUSTER_ACTION),
    "Forwarded": for_cluster(AclOperation.CLUSTER_ACTION),
    "JoinQuorum": for_cluster(AclOperation.CLUSTER_ACTION),
    "RaftMessage": raft_message,
}
