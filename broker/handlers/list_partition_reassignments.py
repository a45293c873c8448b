"""ListPartitionReassignments: the partitions that are on the move: of those named, or (null) of all (KIP-455).

What does not exist or does not move is left out, without an error. There is one version.
"""

from __future__ import annotations

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.metadata.image import TopicImage
from tidemark.broker.metadata.reassignment import is_moving
from tidemark.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@handles(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, _call: Call, *, cluster: ClusterView
) -> Job[ListPartitionReassignmentsResponse]:
    image = cluster.image
    wanted: dict[str, list[int] | range]
    if request.topics is None:
        wanted = {name: range(len(topic.partitions)) for name, topic in image.topics.items()}
    else:
        wanted = {each.name: each.partition_indexes for each in request.topics if each.name in image.topics}
    topics = yield from in_slices(
        lambda name: OngoingTopicReassignment(name=name, partitions=_moving(image.topics[name], wanted[name])), wanted
    )
    return ListPartitionReassignmentsResponse(topics=[topic for topic in topics if topic.partitions])


def _moving(topic: TopicImage, indexes: list[int] | range) -> list[OngoingPartitionReassignment]:
    return [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(topic.partitions[index].replicas),
            adding_replicas=list(topic.partitions[index].adding),
            removing_replicas=list(topic.partitions[index].removing),
        )
        for index in indexes
        if 0 <= index < len(topic.partitions) and is_moving(topic.partitions[index])
    ]
