"""What a fetch reads: the records of its partitions that are there now, as slices of files.

It reads in the order of the request until `max_bytes` are found; an error of one partition is that partition's own.
Nothing here waits for the disk: what has to be loaded first is named (`cold`), and read again when it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from tidemark.broker.core.errors import EXPECTED, check_leader_epoch, fault_of
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.core.registry import Call
from tidemark.broker.core.time_slice import TimeSlice
from tidemark.broker.handlers.fetch.sessions import ReadPosition, Session
from tidemark.broker.replication import hints
from tidemark.broker.replication.fetch_session import NO_SESSION, diverging_epoch
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tidemark.storage import ColdRead, FileSlice, Log

FOLLOWERS_FROM: Final = 11  # KIP-392
READ_COMMITTED: Final = 1
SLICE_SECONDS_MAX: Final = 0.01  # of reading at one go
CLOCK_EVERY: Final = 64  # partitions between two readings of the clock
COLD_ROUNDS_MAX: Final = 8  # of loading: a segment, a place in it, where the read ends, and some in vain


Topics = dict[str | bytes, FetchableTopicResponse]


class Reading:
    """One fetch: what it wants, and what a read of it yields now."""

    __slots__ = (
        "_reserved_bytes",
        "_waits",
        "call",
        "cold",
        "committed",
        "cut_off",
        "endpoints",
        "has_error",
        "incremental",
        "limit_bytes",
        "may_read",
        "min_bytes",
        "partitions",
        "rack",
        "replicas",
        "request",
        "results",
        "session",
        "size",
        "wanted",
    )

    def __init__(
        self,
        request: FetchRequest,
        call: Call,
        session: Session | None,
        wanted: list[ReadPosition],
        incremental: bool,
        replicas: ReplicaTable,
        limit_bytes: int,
    ) -> None:
        self.request = request
        self.call = call
        self.may_read: Callable[[str | bytes], bool] | None = None  # where there is an authorizer
        self.rack = ""  # of a client that may be sent to another replica
        self.endpoints: dict[int, NodeEndpoint] | None = None
        self.committed = request.isolation_level == READ_COMMITTED
        self.session = session
        self.wanted = wanted
        self.incremental = incremental
        self.replicas = replicas
        self.limit_bytes = limit_bytes
        self.min_bytes = min(request.min_bytes, limit_bytes)  # as Kafka: or what is asked for could never come
        self.results: list[PartitionData] = []
        self.partitions: dict[Replica, int] = {}  # what is read, and its place among `wanted` and `results`
        self.size = 0
        self.has_error = False
        self.cold: dict[int, ColdRead] = {}  # what is not in memory and has to be loaded first, by place
        self._reserved_bytes = 0  # for that
        self._waits = False  # for the disk, if need be

    @property
    def is_due(self) -> bool:
        return self.size >= self.min_bytes or self.has_error or not self.wanted

    def read(self) -> None:
        self._check_lease()
        self.results = [self._read_one(wanted, place) for place, wanted in enumerate(self.wanted)]

    async def read_in_slices(self) -> None:
        """As `read`, for very many partitions: other requests have their turn in between."""
        self._check_lease()
        until = monotonic() + SLICE_SECONDS_MAX
        for place, wanted in enumerate(self.wanted):
            self.results.append(self._read_one(wanted, place))
            if not place % CLOCK_EVERY and monotonic() > until:
                await asyncio.sleep(0)
                until = monotonic() + SLICE_SECONDS_MAX

    def read_again(self, places: Iterable[int]) -> None:
        """Only these: the others have nothing new."""
        self._check_lease()
        for place in places:
            self.size -= _size_of(self.results[place])
            self.results[place] = self._read_one(self.wanted[place], place)

    async def read_cold(self) -> None:
        """What was not in memory is brought there by other threads, then read."""
        loop, executor = asyncio.get_running_loop(), self.replicas.readers
        for round_left in reversed(range(COLD_ROUNDS_MAX)):
            cold, self.cold, self._reserved_bytes = self.cold, {}, 0
            await asyncio.gather(*(loop.run_in_executor(executor, each.load) for each in cold.values()))
            for each in cold.values():
                each.finish()
            self._waits = not round_left  # it was forgotten again and again: memory is that short
            self.read_again(cold)
            if not self.cold:
                break
        self._waits = False

    def _check_lease(self) -> None:
        lease_until = self.replicas.lease_until
        self.cut_off = lease_until is not None and lease_clock() >= lease_until

    def _read_one(self, wanted: ReadPosition, place: int) -> PartitionData:
        topic = wanted.topic
        if self.may_read is not None and not self.may_read(topic):
            return self._denied(wanted)
        hosted = self.replicas.topics.get(topic) if type(topic) is str else self.replicas.topics_by_id.get(topic)  # type: ignore[arg-type]
        partition: Replica | None = None if hosted is None else hosted.partitions.get(wanted.index)
        if partition is None or self.cut_off:
            partition = self._followed(wanted, hosted)
            if partition is None:
                return self._unknown(wanted, hosted)
        log = partition.log
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=log.last_stable_offset(partition.high_watermark),
            log_start_offset=log.start_offset,
            aborted_transactions=None,
            records=_EMPTY,
        )
        try:
            if wanted.leader_epoch >= 0 and wanted.leader_epoch != partition.leader_epoch:
                check_leader_epoch(wanted.leader_epoch, partition.leader_epoch)
            if wanted.last_fetched_epoch >= 0:
                divergence = diverging_epoch(
                    log, fetch_offset=wanted.fetch_offset, last_fetched_epoch=wanted.last_fetched_epoch
                )
                if divergence is not None:
                    data.diverging_epoch = divergence
                    self.has_error = True
                    return data
            if self.rack and isinstance(partition, Partition):
                data.preferred_read_replica = self._nearer(partition, wanted)
                if data.preferred_read_replica >= 0:
                    self.has_error = True
                    return data
            left = self.limit_bytes - self.size - self._reserved_bytes
            limit_bytes = max(0, min(wanted.limit_bytes, left))
            slices: list[FileSlice] = []
            if left > 0 or not (self.size or self.cold):
                slices = (partition.read_committed if self.committed else partition.read)(
                    offset=wanted.fetch_offset,
                    limit_bytes=limit_bytes,
                    at_least_one=not self.size,
                    wait=self._waits,
                )
            if self.committed:
                data.aborted_transactions = _aborted(log, wanted.fetch_offset, slices, wait=self._waits)
            if slices:
                data.records = slices
                self.size += sum(map(len, slices))
            self.partitions[partition] = place
        except ColdRead as cold:
            self.cold[place] = cold
            self._reserved_bytes += limit_bytes
            self.partitions[partition] = place
        except EXPECTED as error:
            fault = fault_of(error, where=f"{partition.topic}-{partition.index}")
            self.has_error = True
            data.error_code = fault.code
            data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        return data

    def _followed(self, wanted: ReadPosition, hosted: HostedTopic | None) -> Replica | None:
        """KIP-392: a consumer may read from a follower as well."""
        if hosted is None or self.cut_off or self.call.version < FOLLOWERS_FROM:
            return None
        followed = hosted.followed.get(wanted.index)
        return None if followed is None or followed.is_truncating else followed

    def _nearer(self, partition: Partition, wanted: ReadPosition) -> int:
        """An in-sync replica in the client's rack that has what it wants; -1 if that is this node, or there is none."""
        image = self.replicas.image
        own = image.brokers.get(self.replicas.node_id)
        if own is None or own.rack == self.rack:
            return -1
        for node_id in partition.leadership.isr:
            broker = image.brokers.get(node_id)
            follower = partition.leadership.followers.get(node_id)
            if broker is None or follower is None or broker.rack != self.rack or not broker.is_active:
                continue
            if follower.log_start_offset <= wanted.fetch_offset <= follower.offset:
                return node_id
        return -1

    def _unknown(self, wanted: ReadPosition, hosted: HostedTopic | None) -> PartitionData:
        self.has_error = True
        data = PartitionData(partition_index=wanted.index, high_watermark=-1, aborted_transactions=None, records=b"")
        if hosted is not None:
            led = wanted.index in hosted.partitions
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if led else hosted.why_not_led(wanted.index)
            if data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and not led:
                self._hint(data, hosted)
        elif isinstance(wanted.topic, bytes):
            data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            data.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return data

    def _denied(self, wanted: ReadPosition) -> PartitionData:
        self.has_error = True
        return PartitionData(
            partition_index=wanted.index,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )

    def _hint(self, data: PartitionData, hosted: HostedTopic) -> None:
        leader, epoch = hints.leader_of(hosted, data.partition_index)
        found = hints.endpoint_of(self.replicas.image, leader, self.call.connection.listener)
        if found is not None:
            endpoint, rack = found
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            if self.endpoints is None:
                self.endpoints = {}
            self.endpoints[leader] = NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=rack)

    def response(self) -> FetchResponse:
        topics: Topics = {}
        served: list[ReadPosition] = []
        self._tell(self.wanted, self.results, topics, served)
        return self._told(topics, served)

    async def response_in_slices(self) -> FetchResponse:
        """As `response`, for very many partitions."""
        topics: Topics = {}
        served: list[ReadPosition] = []
        time_slice = TimeSlice()
        for start in range(0, len(self.wanted), CLOCK_EVERY):
            part = slice(start, start + CLOCK_EVERY)
            self._tell(self.wanted[part], self.results[part], topics, served)
            await time_slice.pause()
        return self._told(topics, served)

    def _tell(
        self, wanted: list[ReadPosition], results: list[PartitionData], topics: Topics, served: list[ReadPosition]
    ) -> None:
        """Put results into the answer, if they are news to the reader."""
        session = self.session
        for position, data in zip(wanted, results, strict=True):
            if session is not None and not position.has_news(data) and self.incremental:
                continue
            topic = topics.get(position.topic)
            if topic is None:
                topic = topics[position.topic] = _topic_response(position.topic)
            topic.partitions.append(data)
            if data.records:
                served.append(position)
                self._count(position, data)

    def _count(self, position: ReadPosition, data: PartitionData) -> None:
        replicas, topic, slices = self.replicas, position.topic, data.records
        hosted = replicas.topics.get(topic) if type(topic) is str else replicas.topics_by_id.get(topic)  # type: ignore[arg-type]
        if hosted is None or type(slices) is not list:
            return
        hosted.traffic.bytes_out += sum(map(len, slices))
        replica = hosted.partitions.get(position.index) or hosted.followed.get(position.index)
        if replica is not None:
            hosted.traffic.records_out += replica.log.offsets_in(position.fetch_offset, slices)

    def _told(self, topics: Topics, served: list[ReadPosition]) -> FetchResponse:
        session = self.session
        if session is not None:
            session.rotate(served)
        response = FetchResponse(
            session_id=NO_SESSION if session is None else session.session_id, responses=list(topics.values())
        )
        if self.endpoints is not None:
            response.node_endpoints = list(self.endpoints.values())
        return response


def _aborted(log: Log, offset: int, slices: list[FileSlice], *, wait: bool) -> list[AbortedTransaction]:
    if not slices:
        return []
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in log.aborted_in(offset, slices, wait=wait)
    ]


def _size_of(data: PartitionData) -> int:
    return sum(map(len, data.records)) if isinstance(data.records, list) else 0


def _topic_response(topic: str | bytes) -> FetchableTopicResponse:
    if isinstance(topic, str):
        return FetchableTopicResponse(topic=topic)
    return FetchableTopicResponse(topic_id=topic)


_EMPTY: Final = b""
