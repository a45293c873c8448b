"""ElectLeaders: back to the preferred leaders, or (unclean) to any live replica where no other is left (KIP-183).

A null list asks for all partitions, and is answered only for those that changed or failed. The controller decides;
other brokers forward the request to it.

v1: unclean elections; an error of the whole answer (KIP-460)
v2: flexible (KIP-482)
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.elections import elect
from tidemark.broker.metadata.image import Image, partition_record
from tidemark.broker.metadata.partitions import Election
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}


@handles(ElectLeadersRequest, ElectLeadersResponse, on_controller=True)
async def elect_leaders(
    request: ElectLeadersRequest, _call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> ElectLeadersResponse:
    election = _TYPES.get(request.election_type)
    if election is None:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    results: dict[str, list[PartitionResult]] = {}

    def one(image: Image, name: str, index: int) -> list[Record]:
        topic = image.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        after = elect(image, topic, index, election, settings.current)
        return [partition_record(topic.topic_id, index, after)]

    def decide(image: Image) -> Job[list[Record]]:
        results.clear()
        records: list[Record] = []
        for name, indexes in _wanted(request, image):
            yield
            for index in indexes:
                result = PartitionResult(partition_id=index)
                try:
                    records += one(image, name, index)
                except Refused as refusal:
                    if request.topic_partitions is None and refusal.code == ErrorCode.ELECTION_NOT_NEEDED:
                        continue  # as Kafka: a request for all partitions is answered only for those that changed
                    result.error_code, result.error_message = refusal.code, refusal.message
                results.setdefault(name, []).append(result)
                yield
        return records

    await store.change(decide)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=answers) for name, answers in results.items()
        ]
    )


def _wanted(request: ElectLeadersRequest, image: Image) -> list[tuple[str, list[int]]]:
    if request.topic_partitions is None:
        return [(topic.name, list(range(len(topic.partitions)))) for topic in image.topics.values()]
    return [(each.topic, each.partitions) for each in request.topic_partitions]
