"""ListOffsets: the ends of a partition, or the first record at or after a time.

Negative timestamps have meanings of their own; those about tiered storage are answered as a log that is all local. A
partition that is named twice is refused. A new leader that does not know its high watermark yet answers
OFFSET_NOT_AVAILABLE.

v2: isolation level: the last stable offset for read_committed (KIP-98)
v4: leader epochs (KIP-320)
v5: OFFSET_NOT_AVAILABLE; before, it was LEADER_NOT_AVAILABLE (KIP-207)
v6: flexible (KIP-482)
v7: -3, the record with the largest timestamp (KIP-734)
v8: -4, the earliest local offset (KIP-405)
v9: -5, the latest offset in tiered storage (KIP-1005)
v10: a timeout for tiered storage (KIP-1075)
v11: -6, the earliest offset that is still to be uploaded (KIP-1023)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from tidemark.broker.core.errors import EXPECTED, Refused, check_leader_epoch, fault_of
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import Seen
from tidemark.broker.core.sliced_work import Job, finished, in_slices
from tidemark.broker.core.time_slice import TimeSlice
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidemark.storage import Found

READ_COMMITTED: Final = 1
OFFSET_NOT_AVAILABLE_FROM: Final = 5  # KIP-207
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
SPECIAL_FROM_VERSION: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


Place = tuple[str, int]  # topic and partition
Search = Callable[[], Found | None]


@handles(ListOffsetsRequest, ListOffsetsResponse)
def list_offsets(
    request: ListOffsetsRequest, call: Call, *, replicas: ReplicaTable
) -> Job[ListOffsetsResponse | Awaitable[ListOffsetsResponse]]:
    listing = _OffsetListing(request, call.version, replicas)
    yield from listing.look_over()
    if listing.must_search:
        return listing.search_and_answer()
    return (yield from listing.answer())


class _OffsetListing:
    """One request. Searches by time read index and batches, on another thread; the rest is known."""

    def __init__(self, request: ListOffsetsRequest, version: int, replicas: ReplicaTable) -> None:
        self._topics = request.topics
        self._version = version
        self._replicas = replicas
        self._committed = request.isolation_level == READ_COMMITTED
        self.must_search = False
        self._twice: set[Place] = set()
        self._found: dict[Place, Search] = {}

    def look_over(self) -> Job[None]:
        """What is named twice, and whether anything is to be searched for."""
        seen = Seen[Place]()
        for topic in self._topics:
            yield
            for asked in topic.partitions:
                place = (topic.name, asked.partition_index)
                if not seen.add(place):
                    self._twice.add(place)
                self.must_search = self.must_search or _is_search(asked.timestamp)
                yield
        yield from seen.forget()

    async def search_and_answer(self) -> ListOffsetsResponse:
        time_slice = TimeSlice()
        for topic in self._topics:
            await time_slice.pause()
            for asked in topic.partitions:
                await time_slice.pause()
                place = (topic.name, asked.partition_index)
                if not _is_search(asked.timestamp) or place in self._twice:
                    continue
                if (search := await self._search(place, asked.timestamp)) is not None:
                    self._found[place] = search
        return await finished(self.answer())

    async def _search(self, place: Place, timestamp: int) -> Search | None:
        """What is found, or the error, as a function; nothing if this node does not lead the partition."""
        loop = asyncio.get_running_loop()
        for is_last in (False, False, True):
            try:
                log = self._replicas.leader_of(*place).log
                search = log.begin_search(None if timestamp == MAX_TIMESTAMP else timestamp)
                found = await loop.run_in_executor(self._replicas.readers, search)
                search.finish()
                return lambda found=found: found  # type: ignore[misc]
            except Refused:
                return None  # `answer` says why: very many errors would be much to free at once
            except EXPECTED as error:
                if is_last:
                    return partial(_raise, error)
                # A segment was deleted or cut while it was read, perhaps: the log as it is now may be well.
        raise AssertionError

    def answer(self) -> Job[ListOffsetsResponse]:
        response = ListOffsetsResponse()
        for topic in self._topics:
            partitions = yield from in_slices(partial(self._one, topic.name), topic.partitions)
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return response

    def _one(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        place = (topic, asked.partition_index)
        try:
            if place in self._twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "the partition is in the request twice")
            partition = self._replicas.leader_of(*place)
            check_leader_epoch(asked.current_leader_epoch, partition.leader_epoch)
            end = partition.last_stable_offset if self._committed else partition.high_watermark
            _find(partition, asked.timestamp, answer, self._version, end, self._found.get(place))
        except EXPECTED as error:
            answer.error_code = fault_of(error, where=f"{topic}-{asked.partition_index}").code
        return answer


def _is_search(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _raise(error: Exception) -> Found | None:
    raise error


def _find(
    partition: Partition,
    timestamp: int,
    answer: ListOffsetsPartitionResponse,
    version: int,
    end: int,
    searched: Search | None,
) -> None:
    """`end` is where what this client may see ends."""
    log = partition.log
    if timestamp < 0 and version < SPECIAL_FROM_VERSION.get(timestamp, 0):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning in version {version}")
    if timestamp not in (EARLIEST, EARLIEST_LOCAL) and partition.high_watermark < partition.leadership.start_offset:
        # A new leader does not know yet how far all is committed: what it said would go back behind what the old said.
        known = (
            ErrorCode.OFFSET_NOT_AVAILABLE if version >= OFFSET_NOT_AVAILABLE_FROM else ErrorCode.LEADER_NOT_AVAILABLE
        )
        raise Refused(known, "the high watermark is not known yet")
    if timestamp == LATEST:
        answer.offset, answer.leader_epoch = end, partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = log.start_offset, log.epoch_at(log.start_offset)
    elif _is_search(timestamp):
        if searched is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has led the partition for a moment only")
        found = searched()
        if found is not None and found.offset < end:
            answer.offset, answer.timestamp, answer.leader_epoch = found.offset, found.timestamp, found.leader_epoch
    elif timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
