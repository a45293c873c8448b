"""Fetch and ListOffsets for HTTP clients: asked of the broker that leads a partition, wherever that is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.decoding import Decoder
from tidemark.broker.http.held_answers import HeldAnswers
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.waits import waiting
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FETCH_VERSION: Final = 12  # the last that names topics
OFFSETS_VERSION: Final = 6
REMOTE_BYTES_MAX: Final = 256 << 10  # another node's answer is in memory; of one's own, only where it lies
REMOTE_WAIT_MS_MAX: Final = 500  # another node answers one after the other: nobody should wait long for those before
EARLIEST, LATEST = -2, -1
RETRY_SECONDS: Final = 0.1
RETRYING_SECONDS: Final = 5.0
UNAVAILABLE: Final = 503

Answer = TypeVar("Answer", ListOffsetsPartitionResponse, PartitionData)
TopicPartition = tuple[str, int]


class Fetching:
    def __init__(self, calls: Calls, leaders: Leaders, *, node_id: int, room: HeldAnswers) -> None:
        """`room`: for what answers hold in memory."""
        self._calls = calls
        self._leaders = leaders
        self._node_id = node_id
        self.decoder = Decoder(room)

    async def offset_at(self, topic: str, partition: int, timestamp: int, caller: HttpCaller) -> int:
        """The first offset of a time on, or of the log (EARLIEST), or the end (LATEST). -1: there is none."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])

        async def ask(leader: int) -> ListOffsetsPartitionResponse:
            answer = await self._calls.ask(
                request, ListOffsetsResponse, caller, version=OFFSETS_VERSION, node_id=leader
            )
            return answer.topics[0].partitions[0]

        return (await self._answer_of_leader(topic, partition, ask)).offset

    async def offset_from(self, topic: str, partition: int, timestamp: int, caller: HttpCaller) -> int:
        """As `offset_at`; where nothing is that new, the end."""
        found = await self.offset_at(topic, partition, timestamp, caller)
        if found >= 0:
            return found
        end = await self.offset_at(topic, partition, LATEST, caller)
        found = await self.offset_at(topic, partition, timestamp, caller)  # what came before the end was asked for
        return found if found >= 0 else end

    async def ends(self, partitions: Iterable[TopicPartition], caller: HttpCaller) -> dict[TopicPartition, int]:
        """The end offsets of partitions; of those that nobody leads now, none."""
        found: dict[TopicPartition, int] = {}
        for leader, led in self.by_leader(partitions).items():
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for topic, partition in led:
                asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
                topics.setdefault(topic, []).append(asked)
            request = ListOffsetsRequest(
                topics=[ListOffsetsTopic(name=topic, partitions=each) for topic, each in topics.items()]
            )
            with contextlib.suppress(Problem):
                answer = await self._calls.ask(
                    request, ListOffsetsResponse, caller, version=OFFSETS_VERSION, node_id=leader
                )
                for topic_answer in answer.topics:
                    for each in topic_answer.partitions:
                        if not each.error_code:
                            found[topic_answer.name, each.partition_index] = each.offset
        return found

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Without those that have no leader."""
        found: dict[int, list[TopicPartition]] = {}
        for topic, partition in partitions:
            leader = self._leaders.leader_of(topic, partition)
            if leader >= 0:
                found.setdefault(leader, []).append((topic, partition))
        return found

    async def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        caller: HttpCaller,
        *,
        limit_bytes: int,
        wait_ms: int,
        isolation: int,
    ) -> PartitionData:
        """Of one partition. Raises Problem."""

        async def ask(leader: int) -> PartitionData:
            found = await self.read_from(
                leader,
                {(topic, partition): offset},
                caller,
                limit_bytes=limit_bytes,
                wait_ms=wait_ms,
                isolation=isolation,
            )
            return found[topic, partition]

        return await self._answer_of_leader(topic, partition, ask)

    async def _answer_of_leader(self, topic: str, partition: int, ask: Callable[[int], Awaitable[Answer]]) -> Answer:
        """Asked again while what is wrong may pass, since reading twice does no harm: there is no leader, the one asked
        leads no more or does not know it yet, its node is gone or hung up."""
        problem = Problem.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader.")
        until = monotonic() + RETRYING_SECONDS
        while True:
            leader = self._leaders.leader_of(topic, partition)
            if leader >= 0:
                try:
                    answer = await ask(leader)
                    if not answer.error_code:
                        return answer
                    problem = self._leaders.refusal_by_leader(topic, partition, answer.error_code)
                except Problem as raised:
                    problem = raised
                if problem.status != UNAVAILABLE:
                    raise problem
            if monotonic() >= until:
                raise problem
            with waiting():
                await asyncio.sleep(RETRY_SECONDS)

    async def read_from(
        self,
        leader: int,
        positions: Mapping[TopicPartition, int],
        caller: HttpCaller,
        *,
        limit_bytes: int,
        wait_ms: int,
        isolation: int,
    ) -> dict[TopicPartition, PartitionData]:
        """Of partitions that one broker leads, with whatever error each has."""
        topics: dict[str, list[FetchPartition]] = {}
        if leader != self._node_id:
            limit_bytes, wait_ms = min(limit_bytes, REMOTE_BYTES_MAX), min(wait_ms, REMOTE_WAIT_MS_MAX)
        for (topic, partition), offset in positions.items():
            asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit_bytes)
            topics.setdefault(topic, []).append(asked)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=limit_bytes,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
        )
        answer = await self._calls.ask(request, FetchResponse, caller, version=FETCH_VERSION, node_id=leader)
        if answer.error_code:
            raise Problem.of(answer.error_code)
        return {(each.topic, data.partition_index): data for each in answer.responses for data in each.partitions}
