"""The groups of one partition of `__consumer_offsets`: a state machine without clock, socket or file.

Every event gets the time as an argument and returns its response, a Deferred (the answer waits for another event),
or a CoordinatorResult (the answer waits for its records; see broker/coordination/result.py). Answers to requests that
waited are put into `replies`; the shard host sends them, like every answer, once all records written so far are
committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Set
from itertools import islice
from random import Random
from typing import Any, Final, TypeVar
from uuid import UUID

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.classic.join import refusal
from tidemark.broker.groups.classic.leave import nobody_left
from tidemark.broker.groups.committed_offsets import CommittedOffsets, tombstone
from tidemark.broker.groups.expected_members import ExpectedMembers
from tidemark.broker.groups.group import Caller, Group
from tidemark.broker.groups.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from tidemark.broker.groups.timers import TimerQueue
from tidemark.broker.metadata.image import Image
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

log = logging.getLogger(__name__)

T = TypeVar("T")

TOMBSTONES_PER_BATCH: Final = 500  # in one batch
PREFIX_MAX: Final = 8_000  # characters of a client's id in its member id, which must fit into 32,767 bytes

Replay = Callable[["GroupShard", Any, Any], None]
REPLAY: Final[dict[type[Any], Replay]] = {}
"""How a record changes a shard, by the type of its key. Other kinds of groups add theirs."""


class GroupShard:
    def __init__(
        self,
        *,
        config: BrokerConfig,
        image: Image | None = None,
        random: Random,
        timers: TimerQueue | None = None,
        recent_lookups: Callable[[str, int], int] = lambda _, __: 0,
    ) -> None:
        self.config = config  # replaced by the host when settings change
        self.image = image or Image()  # likewise, when topics change
        self.random = random
        self.timers = timers or TimerQueue()
        self.recent_lookups = recent_lookups  # (group id, now) -> clients that are probably about to join
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self.expected_members = ExpectedMembers()
        self.replies: list[tuple[Deferred[Any], Any]] = []
        self.classic_rebalances = 0  # since it was loaded here
        self.consumer_rebalances = 0

    # -- for the groups ----------------------------------------------------

    def reply(self, deferred: Deferred[T], response: T) -> None:
        self.replies.append((deferred, response))

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix[:PREFIX_MAX]}-{UUID(int=self.random.getrandbits(128), version=4)}"

    def drop_if_unused(self, group_id: str) -> None:
        """A classic group that nothing was written of and that has no members leaves nothing behind."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup) or not group.is_empty or group.is_recorded or group.pending:
            return
        if not self.offsets.of_group(group_id) and not self.offsets.has_pending(group_id):
            del self.groups[group_id]

    # -- the classic protocol ----------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Decision[JoinGroupResponse]:
        group = self.groups.get(request.group_id)
        if group is None and request.member_id:
            return refusal(ErrorCode.UNKNOWN_MEMBER_ID, caller, member_id=request.member_id)
        if group is not None:
            return group.join(self, request, caller, now_ms)
        group = ClassicGroup(request.group_id)
        answer = group.join(self, request, caller, now_ms)
        if group.members or group.pending:
            self.groups[request.group_id] = group
        return answer

    def sync(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Decision[SyncGroupResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return group.sync(self, request, caller, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode | CoordinatorResult:
        """An ErrorCode, or a CoordinatorResult of one."""
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return group.heartbeat(self, request, now_ms)

    def leave(self, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Decision[LeaveGroupResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            return nobody_left(request)
        return group.leave(self, request, caller, now_ms)

    # -- groups ------------------------------------------------------------

    def delete_group(self, group_id: str) -> ErrorCode | CoordinatorResult:
        """An ErrorCode, or a CoordinatorResult of one."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        records = [*self.offsets.deletion(group_id), *self.offsets.pending_deletion(group_id), *group.tombstones()]
        return CoordinatorResult(records, answer=ErrorCode.NONE, refuse=lambda code: code)

    # -- time, and other news ----------------------------------------------

    def wake(self, now_ms: int) -> Iterator[CoordinatorResult | None]:
        """Run the timers that are due. Each result must be written or refused before the next is requested. None as in
        `expire`."""
        for result in self.timers.due(now_ms):
            if result is not None:
                yield result
            yield None

    def expire(self, now_ms: int) -> Iterator[CoordinatorResult | None]:
        """offsets.retention.minutes: forget offsets that were not renewed, and groups that have nothing left. Where
        there is None, and only there, requests may be handled before it goes on."""
        retention_ms = self.config.offsets_retention_minutes * 60_000
        for group_id in list(self.groups):
            yield None
            group = self.groups.get(group_id)
            if group is None:
                continue
            deleted = 0
            for result in self._expire_group(group, now_ms, retention_ms):
                deleted += 0 if result is None else len(result.records)
                yield result
            if deleted:
                log.info("group %s: deleted %d expired records", group_id, deleted)

    def _expire_group(self, group: Group, now_ms: int, retention_ms: int) -> Iterator[CoordinatorResult | None]:
        """None as in `expire`: what is written or committed anew meanwhile stays, and so does the group then."""
        committed = self.offsets.each_of(group.group_id)
        while True:
            some = list(islice(committed, TOMBSTONES_PER_BATCH))
            are_last = len(some) < TOMBSTONES_PER_BATCH
            records = self.offsets.expired(group, some, now_ms=now_ms, retention_ms=retention_ms)
            if are_last and self._has_only(group, len(records)):
                records += group.tombstones()
            if records:
                yield _deletion(records)
            if are_last:
                return
            yield None
            if self.groups.get(group.group_id) is not group:
                return

    def _has_only(self, group: Group, offset_count: int) -> bool:
        """Whether nothing is left of a group without so many offsets."""
        if not group.is_empty or self.offsets.has_pending(group.group_id):
            return False
        return offset_count == sum(map(len, self.offsets.of_group(group.group_id).values()))

    def forget_topics(self, names: Set[str]) -> Iterator[CoordinatorResult | None]:
        """Delete the offsets of deleted topics, as they are now. None as in `expire`: meanwhile a new topic of such a
        name may get offsets of its own, which stay."""
        committed = list(self.offsets.of_topics(names))
        for first in range(0, len(committed), TOMBSTONES_PER_BATCH):
            old = committed[first : first + TOMBSTONES_PER_BATCH]
            records = [
                tombstone(group_id, topic, partition)
                for group_id, topic, partition, value in old
                if self.offsets.of_topic(group_id, topic).get(partition) is value
            ]
            if records:
                yield _deletion(records)
            yield None

    def unknown_topics(self, known: Collection[str]) -> set[str]:
        """Topics with committed offsets that do not exist."""
        return {
            topic
            for group_id in self.offsets.group_ids()
            for topic in self.offsets.of_group(group_id)
            if topic not in known
        }

    # -- the log -----------------------------------------------------------

    def apply(self, result: CoordinatorResult) -> object:
        """The records are in the log: apply them. Returns the answer."""
        if result.producer is None:
            for record in result.records:
                self.replay(record)
        else:
            for record in result.records:
                self.replay_pending(result.producer[0], record)
        if result.then is not None:
            result.then()
        return result.answer

    def replay(self, record: CoordinatorRecord) -> None:
        REPLAY[type(record.key)](self, record.key, record.value)

    def replay_pending(self, producer_id: int, record: CoordinatorRecord) -> None:
        """A record of a transaction that is not decided yet. Only offsets are ever written in one."""
        if type(record.key) is OffsetCommitKey:
            self.offsets.replay_pending(producer_id, record.key, record.value)
            if record.value is not None:
                _add_simple_group(self, record.key.group)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker is in the log."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def loaded(self, now_ms: int) -> Iterator[CoordinatorResult]:
        """The whole log is replayed, and the shard becomes active."""
        for group in list(self.groups.values()):
            result = group.loaded(self, now_ms)
            if result is not None:
                yield result

    def close(self) -> None:
        """The shard is no longer active: answer the requests that wait."""
        for group in self.groups.values():
            group.dropped(self)


def _deletion(records: list[CoordinatorRecord]) -> CoordinatorResult:
    """That no client waits for."""
    return CoordinatorResult(records, refuse=lambda _: None)


def _replay_offset(shard: GroupShard, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
    shard.offsets.replay(key, value)
    if value is not None:
        _add_simple_group(shard, key.group)


def _add_simple_group(shard: GroupShard, group_id: str) -> None:
    if group_id not in shard.groups:
        shard.groups[group_id] = ClassicGroup(group_id)  # a simple group: offsets without members


def _replay_group(shard: GroupShard, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
    group = shard.groups.get(key.group)
    if value is None:
        if isinstance(group, ClassicGroup):
            del shard.groups[key.group]
        return
    if not isinstance(group, ClassicGroup):
        group = shard.groups[key.group] = ClassicGroup(key.group)
    group.restore(value)


REPLAY[OffsetCommitKey] = _replay_offset
REPLAY[GroupMetadataKey] = _replay_group
