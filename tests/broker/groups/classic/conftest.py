"""A shard with a log beside it, driven by hand: what its scenarios need and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.group import Caller
from tidemark.broker.groups.offset_commit import commit
from tidemark.broker.groups.records import decode, encode_key, encode_value
from tidemark.broker.groups.shard import GroupShard
from tidemark.broker.metadata.image import Image, PartitionImage, TopicImage
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PARTITION = PartitionImage(replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0)


def subscription(*topics: str) -> bytes:
    named = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4) + named


class Driver:
    def __init__(self, **settings: Any) -> None:
        self.config = BrokerConfig(**{"group_initial_rebalance_delay_ms": 0, **settings})
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.fails = False
        self.recent_lookups = 0  # clients that asked for the coordinator a moment ago
        self.shard = self._shard()

    def _shard(self) -> GroupShard:
        topics = {
            name: TopicImage(name=name, topic_id=name.encode() * 16, partitions=(PARTITION,) * 3) for name in ("t", "u")
        }
        names = {topic.topic_id: name for name, topic in topics.items()}
        image = Image(topics=topics, topic_names=names)
        return GroupShard(
            config=self.config, image=image, random=Random(1), recent_lookups=lambda *_: self.recent_lookups
        )

    def restart(self) -> None:
        self.shard = self._shard()
        for key, value in self.log:
            self.shard.replay(decode(key, value))
        for result in self.shard.loaded(self.now_ms):
            self.finish(result)

    def finish(self, result: Any) -> Any:
        if type(result) is CoordinatorResult and self.fails:
            result = result.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif type(result) is CoordinatorResult:
            for record in result.records:
                self.log.append((encode_key(record.key), encode_value(record.value, record.version)))
            result = self.shard.apply(result)
        replies, self.shard.replies = self.shard.replies, []
        for deferred, response in replies:
            deferred.resolve(response)
        return answer_of(result) if isinstance(result, Deferred) and result.done else result

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (next_ms := self.shard.timers.next_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            for result in self.shard.wake(self.now_ms):
                self.finish(result)
        self.now_ms = end_ms
        self.finish(None)

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups["g"]
        assert isinstance(group, ClassicGroup)
        return group

    # -- requests ----------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 3,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 20_000,
        protocol_type: str = "consumer",
    ) -> Any:
        offered = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered.items()],
        )
        return self.finish(self.shard.join(request, Caller("client", "/host", version), self.now_ms))

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol: str | None = None,
    ) -> Any:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in (assignments or {}).items()
            ],
        )
        return self.finish(self.shard.sync(request, Caller("client", "/host", 5), self.now_ms))

    def heartbeat(self, member_id: str, generation: int, *, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return ErrorCode(self.finish(self.shard.heartbeat(request, self.now_ms)))

    def leave(self, *members: tuple[str, str | None]) -> Any:
        named = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
        request = LeaveGroupRequest(group_id="g", members=named)
        return self.finish(self.shard.leave(request, Caller("client", "/host", 5), self.now_ms))

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        topic: str = "t",
        partition: int = 0,
        metadata: str = "",
        version: int = 9,
        retention_ms: int = -1,
    ) -> ErrorCode:
        asked = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic.encode() * 16, partitions=[asked])],
        )
        response = self.finish(commit(self.shard, request, version=version, now_ms=self.now_ms))
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def offsets(self, topic: str = "t") -> dict[int, int]:
        return {index: value.offset for index, value in self.shard.offsets.of_topic("g", topic).items()}

    def stable(self, count: int, **how: Any) -> list[str]:
        """A group of so many members, each with its number as assignment. The first is the leader."""
        members = [self.join(**how)]
        for _ in range(count - 1):
            members.append(self.join(**how))
            for index, member in enumerate(members[:-1]):
                members[index] = self.join(member.member_id, **how) if not isinstance(member, Deferred) else member
            members = [answer_of(member) if isinstance(member, Deferred) else member for member in members]
        ids = [member.member_id for member in members]
        generation = members[0].generation_id
        waiting = [self.sync(member_id, generation) for member_id in ids[1:]]
        self.sync(ids[0], generation, {member_id: b"%d" % index for index, member_id in enumerate(ids)})
        assert all(deferred.done for deferred in waiting)
        return ids


def answer_of(deferred: Deferred[Any]) -> Any:
    heard: list[Any] = []
    deferred.then(heard.append)
    assert deferred.done, "the answer is not there yet"
    return heard[0]


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def make_driver() -> Callable[..., Driver]:
    return Driver


@pytest.fixture
def answer() -> Callable[[Deferred[Any]], Any]:
    return answer_of


@pytest.fixture
def subscribed() -> Callable[..., bytes]:
    return subscription
