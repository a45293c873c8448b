"""DescribeTopicPartitions: topics with their partitions in the order of names, page by page (KIP-966).

A page has at most max.request.partition.size.limit partitions; its cursor says where the next one starts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from heapq import merge
from itertools import islice
from typing import Final

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.acl_operations import TOPIC_OPERATIONS
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image, PartitionImage, TopicImage
from tidemark.broker.metadata.internal import INTERNAL_TOPICS
from tidemark.broker.metadata.topics import check_topic_name
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)

SORTED_AT_ONCE: Final = 5_000


@handles(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, _call: Call, *, cluster: ClusterView, settings: DynamicConfig
) -> Job[DescribeTopicPartitionsResponse]:
    image = cluster.image
    asked = (yield from in_slices(_name, request.topics)) or image.topics
    names = yield from _in_order(asked)
    if request.topics and request.cursor is not None and not _has(names, request.cursor.topic_name):
        return DescribeTopicPartitionsResponse(topics=(yield from in_slices(_refused, names)))
    first_name, first_index = ("", 0) if request.cursor is None else _start(request.cursor)
    left = max(1, min(request.response_partition_limit, settings.current.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        yield
        if name < first_name:
            continue
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        begin = first_index if name == first_name else 0
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=begin)
            break
        page = yield from _page(topic, begin, left, image)
        response.topics.append(page)
        left -= len(page.partitions)
        end = begin + len(page.partitions)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _name(topic: TopicRequest) -> str:
    return topic.name


def _in_order(names: Collection[str]) -> Job[list[str]]:
    """Each once. A request may name 300,000: they are sorted a few at a time."""
    left, parts = iter(names), []
    for _ in range(0, len(names), SORTED_AT_ONCE):
        parts.append(sorted(islice(left, SORTED_AT_ONCE)))
        yield
    ordered: list[str] = []
    for name in merge(*parts):
        if not ordered or name != ordered[-1]:
            ordered.append(name)
        yield
    return ordered


def _has(ordered: list[str], name: str) -> bool:
    place = bisect_left(ordered, name)
    return place < len(ordered) and ordered[place] == name


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=ErrorCode.INVALID_REQUEST)


def _start(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, max(0, cursor.partition_index)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except Refused as refusal:
        code = refusal.code
    return DescribeTopicPartitionsResponseTopic(
        name=name, error_code=code, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _page(topic: TopicImage, begin: int, count: int, image: Image) -> Job[DescribeTopicPartitionsResponseTopic]:
    partitions = yield from in_slices(
        lambda index: _partition(index, topic.partitions[index], image),
        range(begin, min(begin + count, len(topic.partitions))),
    )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=partitions,
    )


def _partition(index: int, partition: PartitionImage, image: Image) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader < 0 else ErrorCode.NONE,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[
            node_id for node_id in partition.replicas if (broker := image.brokers.get(node_id)) is None or broker.fenced
        ],
    )
