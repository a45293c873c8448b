"""ListPartitionReassignments: the partitions that are on the move: of those named, or (null) of all (KIP-455).

What does not exist or does not move is left out, without an error. There is one version.
"""

from __future__ import annotations

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
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
    response = ListPartitionReassignmentsResponse()
    for name, indexes in wanted.items():
        moving = yield from _moving(image.topics[name], indexes)
        if moving:
            response.topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return response


def _moving(topic: TopicImage, indexes: list[int] | range) -> Job[list[OngoingPartitionReassignment]]:
    found = []
    for index in indexes:
        yield
        if 0 <= index < len(topic.partitions) and is_moving(topic.partitions[index]):
            partition = topic.partitions[index]
            ongoing = OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
            found.append(ongoing)
    return found
