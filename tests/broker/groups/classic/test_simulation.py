"""Random histories of a classic group on the pure state machine, from a seed.

Members join, leave, die, stall and restart; requests repeat and arrive late; appends fail; the broker is killed, and
what it knew is rebuilt from its log. A failing seed is printed; `TIDEMARK_SEED=n pytest <this file>` runs it alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from histories import run_histories

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.classic.membership import ClassicGroupState
from tidemark.broker.groups.group import Caller
from tidemark.broker.groups.offset_commit import commit
from tidemark.broker.groups.offset_fetch import fetch
from tidemark.broker.groups.records import decode, encode_key, encode_value
from tidemark.broker.groups.shard import GroupShard
from tidemark.broker.metadata.image import Image, PartitionImage, TopicImage
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

GROUP = "g"
HISTORIES = 1200
CHUNKS = 8
STEPS = 120
SESSION_MS = 10_000
REBALANCE_MS = 20_000
PARTITION = PartitionImage(replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0)
BETWEEN = "between generations"
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t"


class Broken(AssertionError):
    """Something happened that must never happen."""


@dataclass(eq=False)
class Client:
    """A consumer, as far as the protocol goes: owns what its last generation gave it, until it hears otherwise."""

    name: str
    version: int
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    state: str = "out"
    owned: frozenset[int] = frozenset()
    waiting: Deferred[Any] | None = None
    stalled_until_ms: int = 0
    to_sync: SyncGroupRequest | None = None  # what it will send when it gets round to it
    old_requests: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        delay_ms = self.random.choice([0, 0, 3_000])
        self.config = BrokerConfig(group_initial_rebalance_delay_ms=delay_ms, group_min_session_timeout_ms=0)
        self.partitions = self.random.randint(1, 6)
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.clients: list[Client] = []
        self.zombies: list[Client] = []  # former selves of static members, which do not know it yet
        self.named = 0
        self.committed: dict[int, int] = {}  # what we were told is safe
        self.granted: dict[tuple[int, int], str] = {}  # (generation, partition) → who was given it
        self.newest = -1  # the newest generation that any member got an assignment of
        self.fails = False  # appends, at the moment
        self.shard = self.fresh_shard()

    # -- the broker --------------------------------------------------------

    def fresh_shard(self) -> GroupShard:
        topic = TopicImage(name="t", topic_id=b"t" * 16, partitions=(PARTITION,) * self.partitions)
        image = Image(topics={"t": topic}, topic_names={topic.topic_id: "t"})
        shard = GroupShard(config=self.config, image=image, random=Random(self.random.random()))
        for key, value in self.log:
            shard.replay(decode(key, value))
        return shard

    def crash(self) -> None:
        """Connections break: nobody gets the answer that it waits for, and nothing that was on its way arrives."""
        self.shard = self.fresh_shard()
        for result in self.shard.loaded(self.now_ms):
            self.finish(result)
        for client in self.clients:
            client.old_requests.clear()
            if client.waiting is not None:
                client.waiting, client.state = None, "out"

    def finish(self, result: Any) -> Any:
        if type(result) is CoordinatorResult:
            if self.fails:
                before = durable(self.shard)
                result = result.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                check(durable(self.shard) == before, "a failed append changed something")
            else:
                for record in result.records:
                    self.log.append((encode_key(record.key), encode_value(record.value, record.version)))
                result = self.shard.apply(result)
        replies, self.shard.replies = self.shard.replies, []
        for deferred, response in replies:
            deferred.resolve(response)
        return result

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        while (next_ms := self.shard.timers.next_ms) is not None and next_ms <= self.now_ms:
            for result in self.shard.wake(self.now_ms):
                self.finish(result)
        self.finish(None)

    # -- invariants --------------------------------------------------------

    def note_grant(self, client: Client, generation: int, partitions: frozenset[int]) -> None:
        self.newest = max(self.newest, generation)
        for partition in partitions:
            owner = self.granted.setdefault((generation, partition), client.identity)
            check(owner == client.identity, f"partition {partition} of generation {generation} has two owners")

    def check_offsets(self) -> None:
        found = fetch(self.shard, GROUP, None)
        check(found.error_code == 0, "offsets cannot be fetched")
        stored = {each.partition: each.offset for each in found.topics.get("t", [])}
        check(stored == self.committed, f"committed offsets are {stored}, not {self.committed}")

    def check_replay(self) -> None:
        replayed, live = durable(self.fresh_shard()), durable(self.shard)
        check(replayed[0] == live[0], "the log does not add up to the offsets that the broker knows")
        if live[1] != BETWEEN:  # a generation is written down once it has its assignment
            check(replayed[1] == live[1], "the log does not add up to the group that the broker knows")

    # -- clients -----------------------------------------------------------

    def add_client(self) -> Client:
        self.named += 1
        client = Client(name=f"c{self.named}", version=self.random.choice([0, 3, 5, 9]))
        if client.version >= 5 and self.random.random() < 0.4:
            client.instance_id = f"i{self.random.randint(1, 3)}"
            self.clients = [each for each in self.clients if each.instance_id != client.instance_id]
        self.clients.append(client)
        return client

    def act(self, client: Client) -> None:
        if client.waiting is not None:
            if not client.waiting.done:
                if self.random.random() < 0.03:  # the client loses patience, and its connection
                    client.waiting, client.state = None, "out"
                return
            deferred, client.waiting = client.waiting, None
            deferred.then(lambda response: self.hear(client, response))
        elif client.state == "out":
            self.send(client, "join", self.join_request(client))
        elif client.to_sync is not None:
            request, client.to_sync = client.to_sync, None
            self.send(client, "sync", request)
        elif self.random.random() < 0.5:
            self.send(client, "heartbeat", self.heartbeat_request(client))
        elif client.owned:
            self.send(client, "commit", self.commit_request(client))

    def send(self, client: Client, kind: str, request: Any) -> None:
        client.old_requests = [*client.old_requests[-5:], (kind, request)]
        response = self.handle(client, kind, request)
        if isinstance(response, Deferred):
            client.waiting = response
            client.state = kind
        elif self.random.random() < 0.03:
            client.state = "out"  # the answer was lost, and with it the connection
        else:
            self.hear(client, response)

    def handle(self, client: Client, kind: str, request: Any) -> Any:
        caller = Caller(client.name, "/h", client.version)
        if kind == "join":
            return self.finish(self.shard.join(request, caller, self.now_ms))
        if kind == "sync":
            return self.finish(self.shard.sync(request, caller, self.now_ms))
        if kind == "leave":
            return self.finish(self.shard.leave(request, caller, self.now_ms))
        if kind == "commit":
            return self.commit(request)
        code = self.finish(self.shard.heartbeat(request, self.now_ms))
        return ErrorCode(code)

    def commit(self, request: OffsetCommitRequest) -> ErrorCode:
        response = self.finish(commit(self.shard, request, version=7, now_ms=self.now_ms))
        asked = request.topics[0].partitions[0]
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        if code == 0:
            check(request.generation_id_or_member_epoch >= self.newest, "a commit from the past was accepted")
            self.committed[asked.partition_index] = asked.committed_offset
        return code

    def hear(self, client: Client, response: Any) -> None:
        if isinstance(response, JoinGroupResponse):
            self.heard_join(client, response)
        elif isinstance(response, SyncGroupResponse):
            self.heard_sync(client, response)
        elif isinstance(response, ErrorCode):
            self.heard_code(client, response)

    def heard_code(self, client: Client, code: ErrorCode) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        if code == ErrorCode.FENCED_INSTANCE_ID and client in self.clients:
            self.clients.remove(client)
        if code not in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            client.state, client.owned = "out", frozenset()

    def heard_join(self, client: Client, response: JoinGroupResponse) -> None:
        code = ErrorCode(response.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        if code:
            client.state = "out"
            self.heard_code(client, code)
            return
        client.member_id, client.generation, client.owned = response.member_id, response.generation_id, frozenset()
        assignments = []
        if response.leader == response.member_id and not response.skip_assignment:
            assignments = self.assign(response)
        client.state = "joined"
        client.to_sync = SyncGroupRequest(
            group_id=GROUP,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            assignments=assignments,
        )

    def assign(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(member.member_id for member in response.members)
        check(response.member_id in members, "a leader that is not among the members")
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=json.dumps(
                    [response.generation_id, *range(index, self.partitions, len(members))]  # so that we know its age
                ).encode(),
            )
            for index, member_id in enumerate(members)
        ]

    def heard_sync(self, client: Client, response: SyncGroupResponse) -> None:
        if response.error_code:
            client.state = "out"
            # After a crash a generation that never got its assignment is counted again, as in Kafka: a SyncGroup that
            # was refused then must not be sent once more, and no client does that.
            client.old_requests = [(kind, request) for kind, request in client.old_requests if kind != "sync"]
            self.heard_code(client, ErrorCode(response.error_code))
            return
        client.state = "stable"
        made_in, *partitions = json.loads(bytes(response.assignment))
        check(made_in == client.generation, f"an assignment of generation {made_in} in generation {client.generation}")
        client.owned = frozenset(partitions)
        self.note_grant(client, client.generation, client.owned)

    # -- requests ----------------------------------------------------------

    def join_request(self, client: Client) -> JoinGroupRequest:
        client.owned = frozenset()
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )

    def heartbeat_request(self, client: Client) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=GROUP,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )

    def commit_request(self, client: Client) -> OffsetCommitRequest:
        asked = OffsetCommitRequestPartition(
            partition_index=self.random.choice(sorted(client.owned)), committed_offset=self.random.randint(0, 1 << 40)
        )
        return OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[asked])],
        )

    # -- what happens ------------------------------------------------------

    def step(self) -> None:
        self.fails = self.random.random() < 0.03
        chance = self.random.random()
        if not self.clients or (chance < 0.06 and len(self.clients) < 7):
            self.add_client()
        elif chance < 0.09:
            self.clients.remove(self.random.choice(self.clients))  # it dies without a word
        elif chance < 0.11:
            self.leave(self.random.choice(self.clients))
        elif chance < 0.13:
            self.random.choice(self.clients).stalled_until_ms = self.now_ms + self.random.randint(0, 40_000)
        elif chance < 0.15:
            self.restart(self.random.choice(self.clients))
        elif chance < 0.17:
            self.crash()
        elif chance < 0.24:
            self.repeat(self.random.choice(self.clients))
        elif chance < 0.28 and self.zombies:
            self.haunt(self.random.choice(self.zombies))
        else:
            for client in self.random.sample(self.clients, len(self.clients)):
                if client.stalled_until_ms <= self.now_ms:
                    self.act(client)
        self.advance(self.random.choice([0, 10, 100, 1_000, 3_000]))
        self.fails = False
        self.check_offsets()
        if self.random.random() < 0.04:
            self.check_replay()

    def leave(self, client: Client) -> None:
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance_id)
        self.handle(client, "leave", LeaveGroupRequest(group_id=GROUP, members=[identity]))
        self.clients.remove(client)

    def restart(self, client: Client) -> None:
        """The process comes back knowing nothing but its configuration; the old one may still be about."""
        self.clients.remove(client)
        if client.instance_id is not None and client.generation >= 0:
            self.zombies = [*self.zombies[-2:], client]
        self.clients.append(Client(name=client.name, version=client.version, instance_id=client.instance_id))

    def repeat(self, client: Client) -> None:
        """A request that was sent before arrives once more; nobody listens to its answer."""
        if client.old_requests:
            kind, request = self.random.choice(client.old_requests)
            if kind != "join":  # an open connection cannot deliver an old one after a newer one was answered
                self.handle(client, kind, request)

    def haunt(self, zombie: Client) -> None:
        """Once its place is taken, nothing that the former self sends is accepted."""
        group = self.shard.groups.get(GROUP)
        holder = group.static_members.get(zombie.instance_id or "") if isinstance(group, ClassicGroup) else None
        if holder == zombie.member_id:
            return
        expected = ErrorCode.UNKNOWN_MEMBER_ID if holder is None else ErrorCode.FENCED_INSTANCE_ID
        for kind, request in (
            ("heartbeat", self.heartbeat_request(zombie)),
            ("commit", self.commit_request(zombie)) if zombie.owned else ("heartbeat", self.heartbeat_request(zombie)),
        ):
            code = self.handle(zombie, kind, request)
            check(code in (expected, ErrorCode.GROUP_ID_NOT_FOUND), f"a {kind} of a former self got {code.name}")

    def settle(self) -> None:
        """No more trouble: the group must come to rest, with every partition at one of its members."""
        if not self.clients:
            self.add_client()
        for client in self.clients:
            client.stalled_until_ms = 0
        for _ in range(400):
            for client in list(self.clients):
                self.act(client)
            self.advance(500)
            if self.is_committed():
                return
        raise Broken(f"the group did not come to rest: {self.clients}")

    def is_committed(self) -> bool:
        group = self.shard.groups.get(GROUP)
        owned = [partition for client in self.clients for partition in client.owned]
        return (
            isinstance(group, ClassicGroup)
            and group.state is ClassicGroupState.STABLE
            and {client.member_id for client in self.clients} == group.members.keys()
            and sorted(owned) == list(range(self.partitions))
            and all(client.generation == group.generation for client in self.clients)
        )


def check(condition: bool, message: str) -> None:
    if not condition:
        raise Broken(message)


def durable(shard: GroupShard) -> Any:
    """What of a shard must survive: offsets, and the group as it last was at rest."""
    group = shard.groups.get(GROUP)
    offsets = {
        (topic, index): (value.offset, value.metadata)
        for topic, partitions in shard.offsets.of_group(GROUP).items()
        for index, value in partitions.items()
    }
    if not isinstance(group, ClassicGroup) or not group.is_recorded:
        return offsets, None
    if group.state not in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY):
        return offsets, BETWEEN
    members = {
        member_id: (member.instance_id, member.assignment, member.metadata(group.protocol))
        for member_id, member in group.members.items()
    }
    return offsets, (group.generation, group.leader, group.protocol, members)


def run(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    world.check_offsets()
    world.check_replay()
    return world


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_history_gives_a_partition_to_two_or_to_nobody_or_loses_a_commit(chunk: int) -> None:
    run_histories(run, count=HISTORIES, chunk=chunk, chunks=CHUNKS)


def test_the_same_seed_gives_the_same_history() -> None:
    assert run(7).log == run(7).log
