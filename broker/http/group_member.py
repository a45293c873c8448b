"""A member of a consumer group on behalf of an HTTP client, in KIP-848's protocol: the coordinator assigns, the member
heartbeats, gives up what it shall give up, and says so.

It speaks through the same handlers as a Kafka client, to whichever broker coordinates the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.fetching import TopicPartition
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.problems import Problem, check
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

log = logging.getLogger(__name__)

OFFSETS_VERSION: Final = 9  # of OffsetFetch and OffsetCommit: the last that names topics
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
REBALANCE_TIMEOUT_MS: Final = 60_000
RETRY_SECONDS: Final = 0.25
LEAVE_SECONDS_MAX: Final = 2.0
# The coordinator does not know this member, or not any more: it joins again.
FENCED: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH))
# Another broker coordinates by now, or none does yet.
NEXT_COORDINATOR: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
UNAVAILABLE: Final = 503

Revoke = Callable[[set[TopicPartition]], Awaitable[None]]


class Subscription:
    """By names, or by an expression."""

    __slots__ = ("pattern", "topics")

    def __init__(self, *, topics: tuple[str, ...] = (), pattern: str | None = None) -> None:
        self.topics = topics
        self.pattern = pattern


class GroupMember:
    def __init__(
        self,
        group: str,
        member_id: str,
        caller: HttpCaller,
        *,
        calls: Calls,
        leaders: Leaders,
        store: MetadataStore,
        revoke: Revoke,
        lose: Callable[[set[TopicPartition]], None],
    ) -> None:
        """`revoke(partitions)` is awaited before they are given up: the moment for a last commit. `lose(partitions)` is
        called when they are gone already."""
        self.group = group
        self.member_id = member_id
        self.caller = caller
        self.epoch = JOIN_EPOCH
        self.assigned: set[TopicPartition] = set()
        self.subscription: Subscription | None = None
        self.failure: Problem | None = None  # why it is not in the group any more
        self.changed = asyncio.Event()  # set, and replaced, whenever the assignment changes
        self._calls = calls
        self._leaders = leaders
        self._store = store
        self._revoke = revoke
        self._lose = lose
        self._turn = asyncio.Lock()  # one request with the member's epoch at a time
        self._wake = asyncio.Event()
        self._told: Subscription | None = None  # what the coordinator knows
        self._owned_told: set[TopicPartition] | None = None
        self._target: list[TopicPartitions] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._has_left = False

    # -- what the client asks for ------------------------------------------

    async def subscribe(self, subscription: Subscription) -> None:
        """Join, or go on with other topics. What the coordinator has against it is raised."""
        before, self.subscription = self.subscription, subscription
        try:
            async with self._turn:
                if self._has_left:
                    raise _left()
                self.failure = None
                await self._beat()
        except Problem as problem:
            if problem.status != UNAVAILABLE:
                self.subscription = before
            raise
        finally:
            if self.subscription is not None and self._beating is None and not self._has_left:
                self._beating = asyncio.ensure_future(self._keep_beating())
        self._wake.set()

    async def leave(self) -> None:
        """Give everything up. The coordinator that does not answer finds out by itself, when the session ends."""
        self._has_left, self.failure = True, _left()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None
        if self.subscription is None:
            return
        with contextlib.suppress(Problem, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS_MAX), self._turn:
                await self._revoke(self.assigned)
                request = ConsumerGroupHeartbeatRequest(
                    group_id=self.group, member_id=self.member_id, member_epoch=LEAVE_EPOCH
                )
                await self._ask(request)
        self._forget()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises Problem."""
        async with self._turn:
            await self.commit_now(offsets)

    async def commit_now(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As `commit`, for `revoke`, which has the turn already."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            topics.setdefault(topic, []).append(asked)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        node_id = await self._leaders.coordinator_of(self.group, self.caller)
        answer = await self._calls.ask(
            request, OffsetCommitResponse, self.caller, version=OFFSETS_VERSION, node_id=node_id
        )
        for topic_answer in answer.topics:
            for each in topic_answer.partitions:
                check(each.error_code)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the group has committed; -1: none."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        named = [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()]
        async with self._turn:
            asked = OffsetFetchRequestGroup(
                group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, topics=named
            )
            node_id = await self._leaders.coordinator_of(self.group, self.caller)
            answer = await self._calls.ask(
                OffsetFetchRequest(groups=[asked], require_stable=True),
                OffsetFetchResponse,
                self.caller,
                version=OFFSETS_VERSION,
                node_id=node_id,
            )
        check(answer.groups[0].error_code)
        found = {}
        for topic_answer in answer.groups[0].topics:
            for each in topic_answer.partitions:
                check(each.error_code)
                found[topic_answer.name, each.partition_index] = each.committed_offset
        return found

    # -- heartbeats --------------------------------------------------------

    async def _keep_beating(self) -> None:
        seconds = 0.0
        while self.failure is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            self._wake.clear()
            try:
                async with self._turn:
                    seconds = await self._beat()
            except Problem as problem:
                if problem.status != UNAVAILABLE:
                    self._forget()
                    self.failure = problem
                seconds = RETRY_SECONDS
            except Exception:
                log.exception("consumer %s of group %s stopped its heartbeats", self.member_id, self.group)
                self._forget()
                self.failure = Problem(500, "UNKNOWN_SERVER_ERROR", "It failed here; the broker's log says why.")
        self._beating = None

    async def _beat(self) -> float:
        """One heartbeat; returns the seconds to the next. Raises Problem if the coordinator will not have us."""
        owned, subscription = set(self.assigned), self.subscription
        answer = await self._ask(self._request())
        code = answer.error_code
        if code in FENCED:
            self._forget()
            return RETRY_SECONDS
        if code in NEXT_COORDINATOR:
            raise Problem.of(code, answer.error_message)
        check(code, answer.error_message)
        self.epoch = answer.member_epoch
        self._told, self._owned_told = subscription, owned
        if answer.assignment is not None:
            self._target = answer.assignment.topic_partitions
        if self._target is not None:
            await self._reconcile(self._target)
        if self.assigned != self._owned_told or self._target is not None:
            return 0.0 if self.assigned != self._owned_told else RETRY_SECONDS
        return answer.heartbeat_interval_ms / 1000

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        """What the coordinator does not know yet. Null is: as before."""
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        subscription = self.subscription
        assert subscription is not None
        if self.epoch == JOIN_EPOCH:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        if self.epoch == JOIN_EPOCH or subscription is not self._told:
            request.subscribed_topic_names = list(subscription.topics)
            request.subscribed_topic_regex = subscription.pattern or ""
        if self.epoch == JOIN_EPOCH or self.assigned != self._owned_told:
            request.topic_partitions = self._owned()
        return request

    def _owned(self) -> list[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.assigned):
            by_topic.setdefault(topic, []).append(partition)
        topics = self._store.image.topics
        return [
            TopicPartitions(topic_id=topics[topic].topic_id, partitions=partitions)
            for topic, partitions in by_topic.items()
            if topic in topics
        ]

    async def _reconcile(self, target: list[TopicPartitions]) -> None:
        """Give up what is another's now, then take what is new. Of a topic that this node does not know yet, later."""
        names = self._store.image.topic_names
        wanted = {
            (names[each.topic_id], index) for each in target if each.topic_id in names for index in each.partitions
        }
        if all(each.topic_id in names for each in target):
            self._target = None
        revoked = self.assigned - wanted
        if revoked:
            self._assign(self.assigned & wanted)  # nobody reads on in them while the last commit is under way
            with contextlib.suppress(Problem):  # what it cannot commit is read again by the next owner
                await self._revoke(revoked)
        if wanted != self.assigned:
            self._assign(wanted)

    def _assign(self, partitions: set[TopicPartition]) -> None:
        self.assigned = partitions
        self.changed.set()
        self.changed = asyncio.Event()

    def _forget(self) -> None:
        """It is not in the group: what it had may be another's by now."""
        self.epoch = JOIN_EPOCH
        self._told = self._owned_told = self._target = None
        self._lose(self.assigned)
        self._assign(set())

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        node_id = await self._leaders.coordinator_of(self.group, self.caller)
        return await self._calls.ask(request, ConsumerGroupHeartbeatResponse, self.caller, node_id=node_id)


def _left() -> Problem:
    return Problem(404, "UNKNOWN_MEMBER_ID", "This consumer has left its group.")
