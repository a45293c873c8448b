"""A follower's fetch session: what its leader sends it, and what the leader learns from its fetches.

A follower names its partitions once (KIP-227). From then on only those with something new are visited: an append puts
its partition on the list of every session that follows it, so that a fetch costs what changed, not what is followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import EXPECTED, Refused, check_leader_epoch, fault_of
from tidemark.broker.replication.fetch_session import NO_DIVERGENCE, SessionEpoch, diverging_epoch
from tidemark.broker.replication.leadership import Follower, LastFetch
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.throttle import is_listed
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidemark.storage import ColdRead

if TYPE_CHECKING:
    from tidemark.broker.replication.follower_progress import FollowerProgress

HELD_BACK_SECONDS_MAX: Final = 1.0  # then the throttle may be another, or none
COLD_ROUNDS_MAX: Final = 8  # of bringing into memory what is forgotten again; then it is read all the same

Key = tuple[bytes, int]


class _Position:
    """One partition in a session: where the follower reads, and what it was last sent."""

    __slots__ = (
        "asked",
        "cold_rounds",
        "follower",
        "is_loading",
        "partition",
        "sent_high_watermark",
        "sent_start_offset",
    )

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.partition: Partition | None = None
        self.follower: Follower | None = None
        self.sent_high_watermark = -1
        self.sent_start_offset = -1
        self.is_loading = False  # what it wants is not in memory, and is brought there by another thread
        self.cold_rounds = 0  # of that, in a row


class FollowerSession:
    """Everything that one broker follows here."""

    def __init__(self, table: ReplicaTable, progress: FollowerProgress, node_id: int, session_id: int) -> None:
        self.node_id = node_id
        self.epoch = SessionEpoch(session_id)
        self.last_fetch = LastFetch()
        self._table = table
        self._progress = progress
        self._positions: dict[Key, _Position] = {}
        self._ready: dict[Key, None] = {}  # which may have something new, longest unserved first
        self._waiting: Deferred[FetchResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._request = FetchRequest()
        self._scheduled = False
        self._held_back: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    # -- a fetch -----------------------------------------------------------

    def fetch(self, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse]:
        self.finish()  # the follower has sent another: it will not wait for the one before
        now = monotonic()
        broker_epoch = request.replica_state.replica_epoch
        self._request = request
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                self._forget((gone.topic_id, index))
        for topic in request.topics:
            for asked in topic.partitions:
                self._place((topic.topic_id, asked.partition), asked, broker_epoch=broker_epoch, now=now)
        self.last_fetch.at = now
        response, due = self._read()
        if due or request.max_wait_ms <= 0:
            return response
        self._waiting = Deferred()
        self._waiting.abandon = self._abandon
        self._timer = self._loop.call_later(request.max_wait_ms / 1000, self.finish)
        return self._waiting

    def _place(self, key: Key, asked: FetchPartition, *, broker_epoch: int, now: float) -> None:
        position = self._positions.get(key)
        if position is None:
            position = self._positions[key] = _Position(asked)
        position.asked = asked
        self._ready[key] = None
        partition = self._find(key)
        if partition is not position.partition:
            self._unwatch(position)
            position.sent_high_watermark = position.sent_start_offset = -1
        if partition is None or asked.current_leader_epoch != partition.leader_epoch:
            return
        if position.partition is None:
            follower = partition.leadership.followers.get(self.node_id)
            if follower is None:
                return  # it knows before us that it is a replica: it is refused, and comes again
            position.partition, position.follower = partition, follower
            partition.replica_watchers.add(self)
        # A follower that asks for more than there is has another log: it is refused, and has acknowledged nothing.
        is_within = asked.fetch_offset <= partition.log.end_offset
        if position.follower is not None and is_within and _divergence(partition, asked) is None:
            if position.follower.is_stuck_at(asked.fetch_offset):
                self._progress.stuck_at(partition, asked.fetch_offset)
            position.follower.fetched(
                offset=asked.fetch_offset,
                log_start_offset=asked.log_start_offset,
                end_offset=partition.log.end_offset,
                broker_epoch=broker_epoch,
                now=now,
                last_fetch=self.last_fetch,
            )
            self._progress.fetched(partition, self.node_id, now)

    def _find(self, key: Key) -> Partition | None:
        hosted = self._table.topics_by_id.get(key[0])
        return None if hosted is None else hosted.partitions.get(key[1])

    def _forget(self, key: Key) -> None:
        position = self._positions.pop(key, None)
        self._ready.pop(key, None)
        if position is None:
            return
        if position.partition is not None and position.follower is not None:
            position.follower.stopped_fetching(monotonic())
            self._progress.stopped_fetching(position.partition)
        self._unwatch(position)

    def _unwatch(self, position: _Position) -> None:
        if position.partition is not None:
            position.partition.replica_watchers.discard(self)
            position.partition = position.follower = None

    # -- what partitions report ---------------------------------------------------

    def appended(self, partition: Partition) -> None:
        self._ready[partition.topic_id, partition.index] = None
        if self._waiting is not None and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._answer_if_due)  # what else arrives now goes with it

    def high_watermark_advanced(self, partition: Partition) -> None:
        """Sent with the next records, or when the wait is over: it is no reason to end the wait."""
        self._ready[partition.topic_id, partition.index] = None

    def ended(self, partition: Partition) -> None:
        """It is not led here any more."""
        position = self._positions.get((partition.topic_id, partition.index))
        if position is not None and position.partition is partition:
            position.partition = position.follower = None
        self.appended(partition)

    def _answer_if_due(self) -> None:
        self._scheduled = False
        if self._waiting is None:
            return
        response, due = self._read()
        if due:
            self._answer(response)

    def finish(self) -> None:
        """Answer the fetch that waits with what there is."""
        if self._waiting is not None:
            self._answer(self._read(at_any_rate=True)[0])

    def _answer(self, response: FetchResponse) -> None:
        waiting, self._waiting = self._waiting, None
        if self._timer is not None:
            self._timer.cancel()
        if waiting is not None:
            waiting.resolve(response)

    def _abandon(self) -> None:
        """The follower has hung up."""
        self._waiting = None
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        self.finish()
        if self._held_back is not None:
            self._held_back.cancel()
        for position in self._positions.values():
            self._unwatch(position)
        self._positions.clear()
        self._ready.clear()

    # -- reading -----------------------------------------------------------

    def _read(self, *, at_any_rate: bool = False) -> tuple[FetchResponse, bool]:
        """The answer as of now, and whether it is worth sending at once. Only what is sent counts as sent."""
        left, found = self._request.max_bytes, 0
        throttle = self._table.leader_throttle
        due = False
        sent: list[tuple[Key, _Position, PartitionData]] = []
        quiet: list[Key] = []
        for key in self._ready:
            position = self._positions.get(key)
            if position is None:
                quiet.append(key)
                continue
            if position.is_loading:
                continue
            limit = left - found
            is_throttled = throttle.is_set and self._is_throttled(position)
            if is_throttled:
                if (wait := throttle.wait(now := self._loop.time())) > 0:
                    self._hold_back(wait)
                    continue
                limit = min(limit, throttle.at_once)
            try:
                data = self._read_one(position, key, limit_bytes=limit, at_least_one=not found)
            except ColdRead as cold:
                self._load(position, cold)
                continue
            size = sum(map(len, data.records)) if isinstance(data.records, list) else 0
            found += size
            if is_throttled:
                throttle.spent(size, now)
            if size or data.error_code or data.diverging_epoch is not NO_DIVERGENCE:
                due = True
            elif (
                data.high_watermark == position.sent_high_watermark
                and data.log_start_offset == position.sent_start_offset
            ):
                if position.partition is not None and position.asked.fetch_offset >= position.partition.log.end_offset:
                    quiet.append(key)
                continue
            elif data.log_start_offset > position.sent_start_offset >= 0:
                due = True  # a client that deleted records waits until they are gone everywhere
            sent.append((key, position, data))
            if found >= left:
                break
        for key in quiet:
            del self._ready[key]
        if due or at_any_rate:
            self._mark_sent(sent)
        return self._response(sent), due

    def _load(self, position: _Position, cold: ColdRead) -> None:
        """Until it is loaded, other partitions have their turn."""
        position.is_loading = True
        position.cold_rounds += 1

        def loaded(_done: asyncio.Future[None]) -> None:
            cold.finish()
            position.is_loading = False
            self._answer_if_due()

        self._loop.run_in_executor(self._table.readers, cold.load).add_done_callback(loaded)

    def _is_throttled(self, position: _Position) -> bool:
        partition = position.partition
        if partition is None or self.node_id in partition.leadership.isr:
            return False
        listed = partition.config.leader_replication_throttled_replicas
        return is_listed(listed, index=partition.index, node_id=partition.leadership.node_id)

    def _hold_back(self, seconds: float) -> None:
        """Look again when there may be more."""
        if self._held_back is None:
            self._held_back = self._loop.call_later(min(seconds, HELD_BACK_SECONDS_MAX), self._end_hold_back)

    def _end_hold_back(self) -> None:
        self._held_back = None
        self._answer_if_due()

    def _mark_sent(self, sent: Iterable[tuple[Key, _Position, PartitionData]]) -> None:
        for key, position, data in sent:
            del self._ready[key]
            if data.error_code or data.diverging_epoch is not NO_DIVERGENCE:
                position.sent_high_watermark = position.sent_start_offset = -1
                continue  # the follower's turn
            position.sent_high_watermark, position.sent_start_offset = data.high_watermark, data.log_start_offset
            if data.records:
                self._ready[key] = None  # to the end of the list
                if position.partition is not None:
                    position.partition.traffic.replication_bytes_out += sum(map(len, data.records))  # type: ignore[arg-type]

    def _response(self, sent: Iterable[tuple[Key, _Position, PartitionData]]) -> FetchResponse:
        topics: dict[bytes, FetchableTopicResponse] = {}
        for (topic_id, _), _, data in sent:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchableTopicResponse(topic_id=topic_id)
            topic.partitions.append(data)
        return FetchResponse(session_id=self.epoch.session_id, responses=list(topics.values()))

    def _read_one(self, position: _Position, key: Key, *, limit_bytes: int, at_least_one: bool) -> PartitionData:
        asked, partition = position.asked, position.partition
        data = PartitionData(
            partition_index=key[1], high_watermark=-1, diverging_epoch=NO_DIVERGENCE, records=b"", log_start_offset=-1
        )
        if partition is None:
            data.error_code = self._why_not(key, asked)
            return data
        data.high_watermark = partition.high_watermark
        data.log_start_offset = partition.log.start_offset
        try:
            if (divergence := _divergence(partition, asked)) is not None:
                data.diverging_epoch = divergence
            elif asked.partition_max_bytes > 0 and (limit_bytes > 0 or at_least_one):  # 0: the follower is throttled
                slices = partition.log.read(
                    offset=asked.fetch_offset,
                    limit_bytes=max(0, min(asked.partition_max_bytes, limit_bytes)),
                    at_least_one=at_least_one,
                    wait=position.cold_rounds >= COLD_ROUNDS_MAX,
                )
                position.cold_rounds = 0
                if slices:
                    data.records = slices
        except EXPECTED as error:
            data.error_code = fault_of(error, where=f"{partition.topic}-{partition.index}").code
        return data

    def _why_not(self, key: Key, asked: FetchPartition) -> int:
        hosted = self._table.topics_by_id.get(key[0])
        if hosted is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = hosted.partitions.get(key[1])
        if partition is None:
            return ErrorCode.KAFKA_STORAGE_ERROR if key[1] in hosted.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            check_leader_epoch(asked.current_leader_epoch, partition.leader_epoch)
        except Refused as refusal:
            return refusal.code
        return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _divergence(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    return diverging_epoch(partition.log, fetch_offset=asked.fetch_offset, last_fetched_epoch=asked.last_fetched_epoch)
