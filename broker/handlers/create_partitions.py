"""CreatePartitions: more partitions for existing topics; a topic never gets fewer (KIP-195).

Count is the new total. All topics of a request change in one commit; a refused one does not hold up the others. The
controller decides; other brokers forward the request to it.

v2: flexible (KIP-482)
v3: the client may be throttled by THROTTLING_QUOTA_EXCEEDED (KIP-599)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import find_repeated
from tidemark.broker.core.sliced_work import Job, finished
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.metadata.topics import adding_partitions, check_partitions_of_request, existing_topic
from tidemark.broker.quotas.service import MutationQuota, Quotas
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

THROTTLED_BY_ERROR_FROM: Final = 3  # KIP-599


@handles(CreatePartitionsRequest, CreatePartitionsResponse, on_controller=True)
async def create_partitions(
    request: CreatePartitionsRequest, call: Call, *, store: MetadataStore, quotas: Quotas
) -> CreatePartitionsResponse:
    quota = quotas.mutation(call, strict_from=THROTTLED_BY_ERROR_FROM)
    twice = await finished(find_repeated(topic.name for topic in request.topics))
    results: dict[str, CreatePartitionsTopicResult] = {}

    def decide(image: Image) -> Job[list[Record]]:
        records: list[Record] = []
        too_many = _too_many(image, request)
        for topic in request.topics:
            yield
            result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
            try:
                if topic.name in twice:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"The topic '{topic.name}' is in the request twice.")
                if too_many is not None:
                    raise too_many
                records += yield from _add(image, topic, quota)
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
        return [] if request.validate_only else records

    await store.change(decide)
    return CreatePartitionsResponse(results=list(results.values()), throttle_time_ms=quota.throttle_time_ms)


def _too_many(image: Image, request: CreatePartitionsRequest) -> Refused | None:
    """As in Kafka, a request adds so many partitions at most, to all of its topics together."""
    known = [(topic.count, image.topics[topic.name]) for topic in request.topics if topic.name in image.topics]
    try:
        check_partitions_of_request(sum(max(0, count - len(topic.partitions)) for count, topic in known))
    except Refused as refusal:
        return refusal
    return None


def _add(image: Image, topic: CreatePartitionsTopic, quota: MutationQuota) -> Job[list[Record]]:
    assignments = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
    existing = existing_topic(image, topic.name)
    records = yield from adding_partitions(image, existing, count=topic.count, assignments=assignments)
    quota.take(topic.count - len(existing.partitions))
    return records
