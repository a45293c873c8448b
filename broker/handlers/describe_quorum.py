"""DescribeQuorum: the voters and observers of the metadata quorum, and how far each of them is (KIP-595).

The quorum's leader answers; other brokers forward the request to it.

v1: when each replica last fetched, and was last caught up (KIP-836)
v2: directory ids, error messages and the addresses of the voters (KIP-853)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.metadata.store import MetadataStore
from tidemark.environment import wall_clock_ms
from tidemark.protocol.errors import ErrorCode
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


@handles(DescribeQuorumRequest, DescribeQuorumResponse, on_controller=True)
def describe_quorum(
    request: DescribeQuorumRequest, _call: Call, *, store: MetadataStore, quorum: QuorumMembership | None
) -> Job[DescribeQuorumResponse]:
    if not store.driver.node.is_leader:
        raise Refused(ErrorCode.NOT_CONTROLLER, "This node does not lead the quorum.")
    addresses = {} if quorum is None else quorum.addresses()
    response = DescribeQuorumResponse(
        nodes=[
            Node(node_id=node_id, listeners=[Listener(name="CONTROLLER", host=address.host, port=address.port)])
            for node_id, address in sorted(addresses.items())
            if node_id in store.driver.node.configuration.voters
        ]
    )
    for topic in request.topics:
        described = partial(_partition, store, topic.topic_name)
        partitions = yield from in_slices(described, (each.partition_index for each in topic.partitions))
        response.topics.append(TopicResult(topic_name=topic.topic_name, partitions=partitions))
    return response


def _partition(store: MetadataStore, topic: str, index: int) -> PartitionResult:
    if topic != METADATA_TOPIC or index != 0:
        return PartitionResult(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    node = store.driver.node
    replicas = node.replicas()
    # Offsets are one further than indexes: they name the place after the last entry.
    states = {
        each.member.node_id: ReplicaState(
            replica_id=each.member.node_id,
            replica_directory_id=each.member.directory_id,
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
    return wall_clock_ms() - round(max(store.driver.node.now - at, 0.0) * 1000)
