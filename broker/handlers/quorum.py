"""DescribeQuorum, AddRaftVoter, RemoveRaftVoter: who keeps the metadata, and who may vote on it (KIP-595, KIP-853)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.peers.peers import Address
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages import add_raft_voter as add
from tidemark.protocol.messages import remove_raft_voter as remove
from tidemark.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionResult,
    ReplicaState,
    TopicResult,
)

if TYPE_CHECKING:
    from tidemark.broker.cluster.quorum_membership import QuorumMembership

METADATA_TOPIC: Final = "__cluster_metadata"
ALONE: Final = "This node has no controller listener: it is a cluster of its own."
VOTER_SECONDS_DEFAULT: Final = 30.0


@handles(DescribeQuorumRequest, DescribeQuorumResponse, on_controller=True)
def describe_quorum(
    request: DescribeQuorumRequest, _call: Call, *, store: MetadataStore, quorum: QuorumMembership | None
) -> DescribeQuorumResponse:
    if not store.driver.node.is_leader:
        raise Refused(ErrorCode.NOT_CONTROLLER, "This node does not lead the quorum.")
    addresses = {} if quorum is None else quorum.addresses()
    return DescribeQuorumResponse(
        topics=[
            TopicResult(
                topic_name=topic.topic_name,
                partitions=[_partition(store, topic.topic_name, each.partition_index) for each in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=[
            Node(node_id=node_id, listeners=[Listener(name="CONTROLLER", host=address.host, port=address.port)])
            for node_id, address in sorted(addresses.items())
            if node_id in store.driver.node.configuration.voters
        ],
    )


def _partition(store: MetadataStore, topic: str, index: int) -> PartitionResult:
    if topic != METADATA_TOPIC or index != 0:
        return PartitionResult(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    node = store.driver.node
    replicas = node.replicas()
    # Offsets are one further than indexes: they name the place after the last entry.
    states = {
        each.member.node_id: ReplicaState(
            replica_id=each.member.node_id,
            log_end_offset=each.match_index + 1,
            last_fetch_timestamp=_wall_clock_ms(store, each.heard_at),
            last_caught_up_timestamp=_wall_clock_ms(store, each.heard_at)
            if each.match_index >= node.commit_index
            else -1,
        )
        for each in replicas
    }
    return PartitionResult(
        leader_id=node.id,
        leader_epoch=node.term,
        high_watermark=node.commit_index + 1,
        current_voters=[states[each.member.node_id] for each in replicas if each.member.is_voter],
        observers=[states[each.member.node_id] for each in replicas if not each.member.is_voter],
    )


def _wall_clock_ms(store: MetadataStore, at: float) -> int:
    return time.time_ns() // 1_000_000 - round(max(store.driver.node.now - at, 0.0) * 1000)


@handles(add.AddRaftVoterRequest, add.AddRaftVoterResponse, on_controller=True)
async def add_raft_voter(
    request: add.AddRaftVoterRequest, _call: Call, *, store: MetadataStore, quorum: QuorumMembership | None
) -> add.AddRaftVoterResponse:
    try:
        _check(store, request.cluster_id)
        address = next((Address(each.host, each.port) for each in request.listeners), None)
        seconds = request.timeout_ms / 1000 if request.timeout_ms > 0 else VOTER_SECONDS_DEFAULT
        await _needed(quorum).add_voter(request.voter_id, address=address, seconds_max=seconds)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return add.AddRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)
    return add.AddRaftVoterResponse()


@handles(remove.RemoveRaftVoterRequest, remove.RemoveRaftVoterResponse, on_controller=True)
async def remove_raft_voter(
    request: remove.RemoveRaftVoterRequest, _call: Call, *, store: MetadataStore, quorum: QuorumMembership | None
) -> remove.RemoveRaftVoterResponse:
    try:
        _check(store, request.cluster_id)
        await _needed(quorum).remove_voter(request.voter_id)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return remove.RemoveRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)
    return remove.RemoveRaftVoterResponse()


def _needed(quorum: QuorumMembership | None) -> QuorumMembership:
    if quorum is None:
        raise Refused(ErrorCode.INVALID_REQUEST, ALONE)
    return quorum


def _check(store: MetadataStore, cluster_id: str | None) -> None:
    if not store.is_controller:
        raise Refused(ErrorCode.NOT_CONTROLLER, "This node does not lead the quorum.")
    if cluster_id and cluster_id != store.image.cluster_id:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"This is cluster {store.image.cluster_id}.")
