"""A Kafka client for readers that plan by offsets: metadata, offsets by position or time, log directories.

A reader fetches over its connections itself: a fetch may be sent ahead of the time when it is needed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from tidemark.client_security import ClientSecurity
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidemark.wire_client import (
    Address,
    BadAddress,
    BrokerConnections,
    Connection,
    NoAnswer,
    error_name,
    parse_addresses,
)

CLIENT_ID = "tidemark-spark"
EARLIEST, LATEST = -2, -1
# Versions that Apache Kafka has served since 3.3 and still does.
METADATA_VERSION, LIST_OFFSETS_VERSION, LOG_DIRS_VERSION = 12, 7, 4
RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

TopicPartition = tuple[str, int]
T = TypeVar("T")


class ReadFailed(Exception):
    """The error for a user, in a sentence."""


class TryAgain(Exception):
    """A condition that new metadata or a little time may heal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: bytes
    leaders: Mapping[int, int]  # by partition; -1 where there is none
    internal: bool = False


class ReadingClient:
    """The brokers behind a bootstrap address, as far as they are needed."""

    def __init__(self, bootstrap: str, *, timeout_s: float, security: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self.cluster_id = ""
        self._timeout_s = timeout_s
        self._brokers = BrokerConnections(
            addresses(bootstrap),
            client_id=CLIENT_ID,
            timeout_s=timeout_s,
            security=ClientSecurity(security) if security else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._brokers.close()

    # Asking

    def connection(self, node: int) -> Connection:
        return self._brokers.connection(node)

    def drop(self, node: int) -> None:
        """Ends a connection whose answers can no longer be told apart, or that failed."""
        self._brokers.drop(node)

    def ask(self, node: int, request: object, response: type[T], version: int) -> T:
        try:
            return self._brokers.ask(node, request, response, version)
        except NoAnswer as reason:
            raise TryAgain(str(reason)) from reason

    def persist(self, attempt: Callable[[], T]) -> T:
        """Repeats what says TryAgain until the time-out, and then says why it never worked."""
        deadline = time.monotonic() + self._timeout_s
        pause_s = 0.02
        while True:
            try:
                return attempt()
            except TryAgain as reason:
                if time.monotonic() > deadline:
                    raise ReadFailed(f"{reason}. (Tried for {self._timeout_s:g} s.)") from reason
            time.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(2 * pause_s, 1.0)

    # Questions

    def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """The topics of these names that exist, or all of them. Nothing is created by asking."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.persist(lambda: self._topics(request))

    def _topics(self, request: MetadataRequest) -> dict[str, Topic]:
        try:
            answer = self._brokers.ask_any(request, MetadataResponse, METADATA_VERSION)
        except NoAnswer as reason:
            raise TryAgain(str(reason)) from reason
        self._brokers.set_addresses({each.node_id: (each.host, each.port) for each in answer.brokers})
        self.cluster_id = answer.cluster_id or ""
        found = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic.error_code:
                check(topic.error_code, f"Topic {topic.name}")
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            name = str(topic.name)
            found[name] = Topic(name=name, topic_id=topic.topic_id, leaders=leaders, internal=topic.is_internal)
        return found

    def offsets(self, wanted: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset at a time, or at EARLIEST or LATEST; -1 if there is no record at or after a time.

        LATEST is the high watermark or, for readers of `committed` records only, the last stable offset.
        """
        return self.persist(lambda: self._offsets(wanted, committed=committed)) if wanted else {}

    def _offsets(self, wanted: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        topics = self._topics(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in sorted({topic for topic, _ in wanted})],
                allow_auto_topic_creation=False,
            )
        )
        by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        for (name, partition), timestamp in wanted.items():
            leader = leader_of(topics, name, partition)
            question = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            by_leader.setdefault(leader, {}).setdefault(name, []).append(question)
        found = {}
        for leader, questions in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed),
                topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in questions.items()],
            )
            answer = self.ask(leader, request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
            for topic in answer.topics:
                for each in topic.partitions:
                    check(each.error_code, f"The offsets of {topic.name}-{each.partition_index}")
                    found[topic.name, each.partition_index] = each.offset
        return found

    def log_dirs(self, node: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """In which directory of this broker's machine each partition is; empty when we may not know."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        request = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=topic, partitions=which) for topic, which in by_topic.items()]
        )
        try:
            answer = self.ask(node, request, DescribeLogDirsResponse, LOG_DIRS_VERSION)
        except TryAgain:
            return {}
        return {
            (topic.name, each.partition_index): result.log_dir
            for result in answer.results
            if not result.error_code
            for topic in result.topics
            for each in topic.partitions
            if not each.is_future_key
        }


def leader_of(topics: Mapping[str, Topic], name: str, partition: int) -> int:
    if name not in topics or partition not in topics[name].leaders:
        raise ReadFailed(f"There is no partition {partition} of a topic {name}.")
    leader = topics[name].leaders[partition]
    if leader < 0:
        raise TryAgain(f"{name}-{partition} has no leader")
    return leader


def check(code: int, about: str) -> None:
    if not code:
        return
    name = error_name(code)
    if code in RETRIABLE:
        raise TryAgain(f"{about}: {name}")
    raise ReadFailed(f"{about}: {name}.")


def addresses(bootstrap: str) -> list[Address]:
    """`host:port,host:port`, brackets around an IPv6 address."""
    try:
        return parse_addresses(bootstrap)
    except BadAddress as error:
        raise ReadFailed(f"kafka.bootstrap.servers: {error}.") from None
