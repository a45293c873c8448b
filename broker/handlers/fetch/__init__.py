"""Fetch: read batches from partitions, now or when there are enough of them (`min_bytes`, `max_wait_ms`).

KIP-74: limits are soft for the very first batch, which is returned even when it is larger than they allow, so that a
reader always gets on. KIP-227: sessions. What is read is file slices; their bytes never come into this process.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import EXPECTED, Refused, check_leader_epoch, fault_of
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.handlers.fetch.sessions import NO_SESSION, FetchSessions, Session, Wanted
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.replication import hints
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replicas import Replicas
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tidemark.storage import FileSlice, Log

log = logging.getLogger(__name__)

SESSIONS_FROM: Final = 7
FOLLOWERS_FROM: Final = 11  # KIP-392
READ_COMMITTED: Final = 1
RACK_AWARE: Final = "RackAwareReplicaSelector"


@handles(FetchRequest, FetchResponse, in_parts=True)
def fetch(
    request: FetchRequest, call: Call, *, replicas: Replicas, fetch_sessions: FetchSessions, settings: DynamicConfig
) -> Any:
    if request.replica_state.replica_id >= 0:
        return replicas.serve_follower(request)
    if call.version < SESSIONS_FROM:
        request.session_epoch = -1
    try:
        session, wanted, incremental = fetch_sessions.resolve(request, call.version)
    except Refused as refusal:
        return FetchResponse(error_code=refusal.code)
    limit_bytes = min(request.max_bytes, settings.current.fetch_max_bytes)
    reading = _Reading(request, call, session, wanted, incremental, replicas, limit_bytes)
    if request.rack_id and (settings.current.replica_selector_class or "").endswith(RACK_AWARE):
        reading.rack = request.rack_id
    reading.read()
    if reading.is_due or request.max_wait_ms <= 0:
        return reading.response()
    return _Waiting(reading, request.max_wait_ms).later


class _Reading:
    """One fetch: what it wants, and what a read of it yields now."""

    __slots__ = (
        "call",
        "committed",
        "cut_off",
        "endpoints",
        "incremental",
        "limit_bytes",
        "partitions",
        "rack",
        "replicas",
        "request",
        "results",
        "session",
        "size",
        "troubled",
        "wanted",
    )

    def __init__(
        self,
        request: FetchRequest,
        call: Call,
        session: Session | None,
        wanted: list[Wanted],
        incremental: bool,
        replicas: Replicas,
        limit_bytes: int,
    ) -> None:
        self.request = request
        self.call = call
        self.rack = ""  # of a client that may be sent to another replica
        self.endpoints: dict[int, NodeEndpoint] | None = None
        self.committed = request.isolation_level == READ_COMMITTED
        self.session = session
        self.wanted = wanted
        self.incremental = incremental
        self.replicas = replicas
        self.limit_bytes = limit_bytes
        self.results: list[PartitionData] = []
        self.partitions: list[Replica] = []
        self.size = 0
        self.troubled = False

    @property
    def is_due(self) -> bool:
        return self.size >= self.request.min_bytes or self.troubled or not self.wanted

    def read(self) -> None:
        self.size = 0
        self.troubled = False
        self.partitions = []
        lease_until = self.replicas.lease_until
        self.cut_off = lease_until is not None and lease_clock() >= lease_until
        self.results = [self._read_one(wanted) for wanted in self.wanted]

    def _read_one(self, wanted: Wanted) -> PartitionData:
        topic = wanted.topic
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
            if wanted.last_fetched_epoch >= 0 and self._diverges(wanted, partition, data):
                self.troubled = True
                return data
            if self.rack and isinstance(partition, Partition):
                data.preferred_read_replica = self._nearer(partition, wanted)
                if data.preferred_read_replica >= 0:
                    self.troubled = True
                    return data
            left = self.limit_bytes - self.size
            slices: list[FileSlice] = []
            if left > 0 or not self.size:
                slices = (partition.read_committed if self.committed else partition.read)(
                    offset=wanted.fetch_offset,
                    limit_bytes=max(0, min(wanted.limit_bytes, left)),
                    at_least_one=not self.size,
                )
                if slices:
                    data.records = slices
                    self.size += sum(map(len, slices))
            if self.committed:
                data.aborted_transactions = _aborted(log, wanted.fetch_offset, slices)
            self.partitions.append(partition)
        except EXPECTED as error:
            fault = fault_of(error, where=f"{partition.topic}-{partition.index}")
            self.troubled = True
            data.error_code = fault.code
            data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        return data

    def _followed(self, wanted: Wanted, hosted: HostedTopic | None) -> Replica | None:
        """KIP-392: a consumer may read from a follower as well."""
        if hosted is None or self.cut_off or self.call.version < FOLLOWERS_FROM:
            return None
        return hosted.followed.get(wanted.index)

    def _nearer(self, partition: Partition, wanted: Wanted) -> int:
        """An in-sync replica in the client's rack that has what it wants, -1 if that is us or nobody."""
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

    def _unknown(self, wanted: Wanted, hosted: HostedTopic | None) -> PartitionData:
        self.troubled = True
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

    def _hint(self, data: PartitionData, hosted: HostedTopic) -> None:
        leader, epoch = hints.leader_of(hosted, data.partition_index)
        found = hints.endpoint_of(self.replicas.image, leader, self.call.connection.listener)
        if found is not None:
            endpoint, rack = found
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            if self.endpoints is None:
                self.endpoints = {}
            self.endpoints[leader] = NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=rack)

    def _diverges(self, wanted: Wanted, partition: Replica, data: PartitionData) -> bool:
        epoch, end_offset = partition.log.epoch_end_offset(wanted.last_fetched_epoch)
        if end_offset >= wanted.fetch_offset and epoch >= wanted.last_fetched_epoch:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True

    def response(self) -> FetchResponse:
        session = self.session
        topics: dict[str | bytes, FetchableTopicResponse] = {}
        served = []
        for wanted, data in zip(self.wanted, self.results, strict=True):
            if session is not None and not wanted.has_news(data) and self.incremental:
                continue
            topic = topics.get(wanted.topic)
            if topic is None:
                topic = topics[wanted.topic] = _topic_response(wanted.topic)
            topic.partitions.append(data)
            if data.records:
                served.append(wanted)
        if session is not None:
            session.rotate(served)
        response = FetchResponse(
            session_id=NO_SESSION if session is None else session.session_id, responses=list(topics.values())
        )
        if self.endpoints is not None:
            response.node_endpoints = list(self.endpoints.values())
        return response


class _Waiting:
    """A fetch that waits for bytes: every partition it reads may end the wait, and so does its timer."""

    __slots__ = ("_loop", "_partitions", "_reading", "_scheduled", "_timer", "later")

    def __init__(self, reading: _Reading, wait_ms_max: int) -> None:
        self.later: Deferred[FetchResponse] = Deferred()
        self.later.abandon = self._stop
        self._loop = asyncio.get_running_loop()
        self._reading = reading
        self._partitions = reading.partitions
        self._scheduled = False
        self._timer = self._loop.call_later(wait_ms_max / 1000, self._finish)
        for partition in self._partitions:
            partition.watchers.add(self)

    def readable(self, partition: Replica) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        if self._reading.request.min_bytes <= 1:
            self._look()  # a sixth less from producer to consumer than with the detour through the loop
        else:
            self._loop.call_soon(self._look)  # what else arrives now is counted with it

    def _look(self) -> None:
        self._scheduled = False
        if self.later.done:
            return
        self._read(at_any_rate=self._reading.replicas.stopping)

    def _finish(self) -> None:
        self._read(at_any_rate=True)

    def _read(self, *, at_any_rate: bool) -> None:
        reading = self._reading
        try:
            reading.read()
            if not (reading.is_due or at_any_rate):
                return
            response = reading.response()
        except Exception:  # the producer whose append woke us has done nothing wrong, and the reader must hear of it
            log.exception("a waiting fetch failed")
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        self._stop()
        self.later.resolve(response)

    def _stop(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.watchers.discard(self)


def _aborted(log: Log, offset: int, slices: list[FileSlice]) -> list[AbortedTransaction]:
    if not slices:
        return []
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in log.aborted_in(offset, slices)
    ]


def _topic_response(topic: str | bytes) -> FetchableTopicResponse:
    if isinstance(topic, str):
        return FetchableTopicResponse(topic=topic)
    return FetchableTopicResponse(topic_id=topic)


_EMPTY: Final = b""
