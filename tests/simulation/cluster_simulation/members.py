"""Members of consumer groups, classic and KIP-848: they read what they are assigned, and commit how far they got.

A member counts a partition as its own from an assignment until it hears otherwise, and no longer than the coordinator
would wait for it: its session, counted from when its last successful request left. So two members that count a
partition as theirs at one moment are an anomaly, whatever the network does.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from cluster_simulation.clients import RETRIABLE, Reader
from cluster_simulation.history import Anomaly, History, Place
from tidemark.broker.peers import PeerUnavailable
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidemark.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
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
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidemark.simulation.client import GROUP, RETRY_SECONDS, KafkaClient

SESSION_SECONDS: Final = 6.0
TRUSTED_SECONDS: Final = SESSION_SECONDS * 0.9  # clocks run at different rates
HEARTBEAT_SECONDS: Final = 1.0
REBALANCE_MS: Final = 10_000
OUT: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
}
SETTINGS: Final = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": str(int(HEARTBEAT_SECONDS * 1000)),
}


class Out(Exception):
    """The coordinator does not count this member, or not in this generation."""


class Member:
    """What both kinds have in common: reading, and committing what was read."""

    def __init__(self, name: str, client: KafkaClient, history: History, random: Random, topics: list[str]) -> None:
        self.name = name
        self.group = name.rsplit("-", 1)[0]
        self.client = client
        self.history = history
        self.random = random
        self.topics = topics
        self.stopping = False
        self.member_id = ""
        self.epoch = -1
        self.owned: dict[Place, Reader] = {}
        self.trusted_until = 0.0
        self.is_careless = random.random() < 0.5  # it commits where it is even when it may be out, as most consumers do
        self._sent_at = 0.0

    # The part that both kinds fill in

    async def join(self) -> None: ...

    async def heartbeat(self) -> None: ...

    async def leave(self) -> None: ...

    # Life

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self.join()
                await self._live()
            except Out:
                self.disown()
                await asyncio.sleep(RETRY_SECONDS)
        self.disown()
        await self.leave()

    async def _live(self) -> None:
        lives_until = monotonic() + self.random.choice((4.0, 20.0, 1e9))  # some members come and go
        while not self.stopping:
            await self.heartbeat()
            wakes_at = monotonic() + HEARTBEAT_SECONDS * (0.5 + 0.5 * self.random.random())
            while monotonic() < wakes_at and not self.stopping:
                await asyncio.sleep(0.15)
                await self.work()
            if monotonic() > lives_until:
                self.disown()
                await self.leave()
                raise Out

    async def work(self) -> None:
        for place, reader in list(self.owned.items()):
            if not self.is_trusted:
                if self.is_careless and reader.offset > 0:
                    await self.commit({place: reader.offset})
                return
            begin = reader.offset
            await reader.poll()
            if not self.is_trusted:
                reader.offset = begin  # it counts as not read
            elif reader.offset > begin:
                self.history.processed(self.group, place, begin, reader.offset)
                await self.commit({place: reader.offset})

    # Who owns what

    @property
    def is_trusted(self) -> bool:
        return monotonic() < self.trusted_until

    def sends(self) -> None:
        self._sent_at = monotonic()

    def heard(self) -> None:
        self.trusted_until = self._sent_at + TRUSTED_SECONDS

    async def own(self, places: Iterable[Place]) -> None:
        """These and no others, from their committed offsets on."""
        wanted = set(places)
        for place in [each for each in self.owned if each not in wanted]:
            del self.owned[place]
        new = sorted(wanted - self.owned.keys())
        if not new:
            return
        offsets = await self.fetch_offsets(new)
        if not self.is_trusted:
            return
        for place in new:
            self.owned[place] = reader = Reader(self.client, self.history, place, committed_only=True)
            reader.offset = max(offsets[place], 0)
        self.history.claim(self, new)

    def disown(self) -> None:
        self.owned.clear()

    # Offsets

    async def ask(self, request: object, response: type[Any], *, version: int, seconds: float = 5.0) -> Any:
        """Of the group's coordinator, once. Raises PeerUnavailable."""
        self.history.requests += 1
        address = await self.client.coordinator_of(self.group, kind=GROUP)
        try:
            return await self.client.ask(address, request, response, version=version, seconds=seconds)
        except PeerUnavailable:
            self.client.forget_coordinator(self.group, kind=GROUP)
            raise

    def judge(self, code: int, what: str) -> bool:
        """True if it went well, false if it is worth another try."""
        if code == ErrorCode.NONE:
            return True
        if code in OUT:
            raise Out
        if code not in RETRIABLE:
            raise Anomaly(f"{self.name}: {what} answers {ErrorCode(code).name}")
        self.client.forget_coordinator(self.group, kind=GROUP)
        return False

    async def fetch_offsets(self, places: list[Place]) -> dict[Place, int]:
        topics = sorted({topic for topic, _ in places})
        asked = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[index for name, index in places if name == topic])
            for topic in topics
        ]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=asked)], require_stable=True
        )
        while True:
            known = {place: self.history.committed.get((self.group, place), -1) for place in places}
            try:
                answer = (await self.ask(request, OffsetFetchResponse, version=8)).groups[0]
            except PeerUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            found = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
            codes = {answer.error_code, *(each.error_code for each in found.values())} - {ErrorCode.NONE}
            if ErrorCode.UNSTABLE_OFFSET_COMMIT in codes:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if all(self.judge(code, "OffsetFetch") for code in sorted(codes)):
                for place, offset in known.items():
                    if found[place].committed_offset < offset:
                        raise Anomaly(
                            f"{self.group} committed offset {offset} of {place}, and is told"
                            f" {found[place].committed_offset}"
                        )
                return {place: each.committed_offset for place, each in found.items()}
            await asyncio.sleep(RETRY_SECONDS)

    async def commit(self, offsets: dict[Place, int]) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)],
            )
            for (topic, index), offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group, generation_id_or_member_epoch=self.epoch, member_id=self.member_id, topics=topics
        )
        known = {place: self.history.committed.get((self.group, place), -1) for place in offsets}
        try:
            answer = await self.ask(request, OffsetCommitResponse, version=9)
        except PeerUnavailable:
            return  # it may have been done; the next one says more
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code == ErrorCode.STALE_MEMBER_EPOCH:
                    return  # the next heartbeat brings the new one
                if self.judge(each.error_code, "OffsetCommit"):
                    place = (topic.name, each.partition_index)
                    self.history.has_committed(self.group, place, offsets[place], known=known[place])


class ClassicMember(Member):
    """Joins, syncs, and beats; who is made the leader assigns partitions in turns."""

    async def join(self) -> None:
        self.disown()
        while not self.stopping:
            self.sends()
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=int(SESSION_SECONDS * 1000),
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="turns", metadata=_subscription(self.topics))],
            )
            try:
                answer = await self.ask(
                    request, JoinGroupResponse, version=5, seconds=REBALANCE_MS / 1000 + SESSION_SECONDS
                )
            except PeerUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if answer.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID):
                self.member_id = answer.member_id if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
                continue
            if self.judge(answer.error_code, "JoinGroup"):
                self.member_id, self.epoch = answer.member_id, answer.generation_id
                if await self._sync(answer):
                    return
            await asyncio.sleep(RETRY_SECONDS)

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        shares = await self._shares(joined) if joined.leader == self.member_id else []
        self.sends()
        request = SyncGroupRequest(
            group_id=self.group, generation_id=self.epoch, member_id=self.member_id, assignments=shares
        )
        try:
            answer = await self.ask(request, SyncGroupResponse, version=3, seconds=SESSION_SECONDS * 2)
        except PeerUnavailable:
            return False
        if not self.judge(answer.error_code, "SyncGroup"):
            return False
        self.heard()
        places = _assigned(bytes(answer.assignment))
        self.history.generation(self.group, self.epoch, self.name, places)
        await self.own(places)
        return True

    async def _shares(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(each.member_id for each in joined.members)
        metadata = await self.client.refresh(*self.topics)
        places = sorted((t.name or "", each.partition_index) for t in metadata.topics for each in t.partitions)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=_assignment(places[at :: len(members)]))
            for at, member in enumerate(members)
        ]

    async def heartbeat(self) -> None:
        self.sends()
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        try:
            answer = await self.ask(request, HeartbeatResponse, version=3)
        except PeerUnavailable:
            return
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if self.judge(answer.error_code, "Heartbeat"):
            self.heard()

    async def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        try:
            await self.ask(request, LeaveGroupResponse, version=4)
        except PeerUnavailable:
            return
        finally:
            self.member_id = ""


class ConsumerMember(Member):
    """KIP-848: the coordinator assigns; a partition moves when its owner has let go of it."""

    async def join(self) -> None:
        self.disown()
        self.epoch, self._full = 0, True
        self.member_id = self.member_id or f"{self.name}.{self.random.getrandbits(32):08x}"

    async def heartbeat(self) -> None:
        self.sends()
        full = self._full or self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=self.topics if full else None,
            topic_partitions=self._told() if full or self._changed else None,
        )
        try:
            answer = await self.ask(request, ConsumerGroupHeartbeatResponse, version=1)
        except PeerUnavailable:
            self._full = True
            return
        if answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID or not self.judge(
            answer.error_code, "ConsumerGroupHeartbeat"
        ):
            self._full = True
            return
        self.heard()
        self._full = self._changed = False
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            await self._reconcile(answer.assignment.topic_partitions)

    _changed = False
    _full = True

    async def _reconcile(self, assigned: list[TopicPartitions]) -> None:
        if not set(self.topics) <= self.client.topic_ids.keys():
            await self.client.refresh(*self.topics)
        names = {topic_id: name for name, topic_id in self.client.topic_ids.items()}
        places = {(names[each.topic_id], index) for each in assigned for index in each.partitions}
        if places != self.owned.keys():
            self._changed = True
            await self.own(places)
            self._full = self.owned.keys() != places  # it came too late: what is there is told in full

    def _told(self) -> list[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            by_topic.setdefault(topic, []).append(index)
        return [
            TopicPartitions(topic_id=self.client.topic_ids[topic], partitions=indexes)
            for topic, indexes in by_topic.items()
        ]

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=-1)
        try:
            await self.ask(request, ConsumerGroupHeartbeatResponse, version=1)
        except PeerUnavailable:
            return
        finally:
            self.member_id = ""


# The consumer protocol's own bytes, version 0


def _subscription(topics: list[str]) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(_text, topics)) + struct.pack(">i", -1)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _assignment(places: list[Place]) -> bytes:
    body = b"".join(_text(topic) + struct.pack(">ii", 1, index) for topic, index in places)
    return struct.pack(">hi", 0, len(places)) + body + struct.pack(">i", -1)


def _assigned(data: bytes) -> list[Place]:
    if not data:
        return []
    (count,) = struct.unpack_from(">i", data, 2)
    places, at = [], 6
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        places.append((topic, struct.unpack_from(">ii", data, at + 2 + size)[1]))
        at += 2 + size + 8
    return places
