"""Random histories of one group on the pure state machine, each from a seed. A failing one is printed; replay it with

TIDEMARK_SEED=1234 pytest tests/broker/groups/consumer/test_simulation.py
"""

from __future__ import annotations

import re
from functools import partial
from random import Random
from typing import Any

import pytest
from histories import run_histories

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.consumer.embedded_protocol import read_assignment, read_subscription, write_assignment
from tidemark.broker.groups.consumer.group import ConsumerGroup
from tidemark.broker.groups.consumer.heartbeat import consumer_heartbeat
from tidemark.broker.groups.group import Caller
from tidemark.broker.groups.records import decode, encode_key, encode_value
from tidemark.broker.groups.shard import GroupShard
from tidemark.broker.metadata.image import Image, PartitionImage, TopicImage
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "g"
HISTORIES = 300
STEPS = 100
REBALANCE_MS = 60_000
CONFIG = BrokerConfig(group_initial_rebalance_delay_ms=0, group_consumer_max_size=4)
ONE_PARTITION = PartitionImage(replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0)
REJOIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
SUBSCRIPTIONS = [(["a"], None), (["a", "b"], None), ([], "[ab].*"), (["c"], "a"), ([], None), (["b"], ".*")]


class World:
    """The coordinator, its log, its topics, and the clock."""

    def __init__(self, random: Random, *, mixed: bool) -> None:
        self.random = random
        self.mixed = mixed
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.sizes: dict[str, tuple[bytes, int]] = {"a": (self._uuid(), 3)}
        self.shard = GroupShard(config=CONFIG, image=self._image(), random=random)
        self.clients: list[Client | ClassicClient] = []
        self.epochs: dict[str, tuple[int, int]] = {}
        self.group_epoch = 0
        self.healthy = False

    def _uuid(self) -> bytes:
        return self.random.getrandbits(128).to_bytes(16, "big")

    def _image(self) -> Image:
        topics = {
            name: TopicImage(name=name, topic_id=topic_id, partitions=(ONE_PARTITION,) * count)
            for name, (topic_id, count) in self.sizes.items()
        }
        return Image(topics=topics, topic_names={topic.topic_id: name for name, topic in topics.items()})

    @property
    def group(self):
        return self.shard.groups.get(GROUP)

    # -- events ------------------------------------------------------------

    def finish(self, result):
        if isinstance(result, CoordinatorResult):
            if not self.healthy and self.random.random() < 0.03:
                result = result.refuse(ErrorCode.NOT_COORDINATOR)  # the disk is full for a moment
            else:
                self.log += [
                    (encode_key(record.key), encode_value(record.value, record.version)) for record in result.records
                ]
                result = self.shard.apply(result)
        self.drain()
        self.check()
        return result

    def drain(self) -> None:
        replies, self.shard.replies = self.shard.replies, []
        for deferred, response in replies:
            deferred.resolve(response)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for result in self.shard.wake(self.now_ms):
            self.finish(result)
        self.drain()
        self.check()

    def change_topics(self) -> None:
        name = self.random.choice("abcd")
        if name not in self.sizes:
            self.sizes[name] = (self._uuid(), self.random.randint(1, 5))
        elif self.random.random() < 0.3:
            del self.sizes[name]
        else:
            topic_id, count = self.sizes[name]
            self.sizes[name] = (topic_id, count + self.random.randint(1, 3))
        self.shard.image = self._image()

    def restart(self) -> None:
        """kill -9 and replay: the same state, whether the log was compacted meanwhile or not."""
        before = self.shard
        for entries in (self.log, self.compacted()):
            self.shard = GroupShard(config=CONFIG, image=before.image, random=self.random)
            for key, value in entries:
                self.shard.replay(decode(key, value))
            assert durable(self.shard) == durable(before)
        for client in self.clients:
            if isinstance(client, ClassicClient):
                client.waiting = None  # its connection broke
        for result in self.shard.loaded(self.now_ms):
            self.finish(result)
        self.check()

    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        latest = {key: position for position, (key, _) in enumerate(self.log)}
        return [entry for position, entry in enumerate(self.log) if latest[entry[0]] == position]

    # -- what must always hold ---------------------------------------------

    def check(self) -> None:
        group = self.group
        if isinstance(group, ConsumerGroup):
            self._check_server(group)
        else:
            self.epochs.clear()
            self.group_epoch = 0
        self._check_clients()

    def _check_server(self, group: ConsumerGroup) -> None:
        state = group.state
        owners: dict[tuple[bytes, int], str] = {}
        for member in state.members.values():
            for partitions_held in (member.assigned, member.pending_revocation):
                for topic_id, numbers in partitions_held.items():
                    for number in numbers:
                        assert (topic_id, number) not in owners, f"{number} is with two members"
                        owners[topic_id, number] = member.member_id
            before = self.epochs.get(member.member_id, (0, 0))[0]
            assert member.member_epoch in (-2, 0) or member.member_epoch >= before
            assert member.member_epoch <= state.assignment_epoch
        assert owners == state.owners
        assert state.assignment_epoch <= state.epoch
        assert state.epoch >= self.group_epoch, "the group's epoch went back"
        targets = [(t, n) for target in state.targets.values() for t, numbers in target.items() for n in numbers]
        assert len(targets) == len(set(targets)), "a target gives something to two members"
        assert state.targets.keys() <= state.members.keys()
        assert set(state.static_members.values()) <= state.members.keys()
        self.epochs = {m.member_id: (m.member_epoch, m.previous_member_epoch) for m in state.members.values()}
        self.group_epoch = state.epoch

    def _check_clients(self) -> None:
        """Whoever the coordinator still counts as a member shares nothing with the others."""
        owners: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            if not client.is_current():
                continue
            for partition in client.owned:
                assert partition not in owners, f"{owners[partition]} and {client.member_id} own {partition[1]}"
                owners[partition] = client.member_id


def durable(shard: GroupShard):
    """What must survive: everything that records can say."""
    found: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        if isinstance(group, ConsumerGroup):
            names = [name for name in group.state.__slots__ if name != "group_id"]
            found[group_id] = {name: getattr(group.state, name) for name in names}
        elif isinstance(group, ClassicGroup) and group.is_recorded:
            found[group_id] = group.protocol_type  # who is in it is the classic tests' business
    return found


class Client:
    """A consumer of KIP-848, with a network between it and the coordinator."""

    def __init__(self, world: World, *, instance_id: str | None = None) -> None:
        self.world = world
        self.instance_id = instance_id
        self.names, self.regex = world.random.choice(SUBSCRIPTIONS)
        self.assignor = world.random.choice([None, None, "uniform", "range"])
        self.alive = True
        self.stalled = False
        self.old_requests: list[ConsumerGroupHeartbeatRequest] = []
        self.start()

    def start(self) -> None:
        self.member_id = f"m{self.world.random.getrandbits(64):x}"
        self.rejoin()

    def rejoin(self) -> None:
        self.epoch = 0
        self.owned: set[tuple[bytes, int]] = set()
        self.assigned: set[tuple[bytes, int]] | None = None
        self.must_tell_all = True
        self.told: frozenset[tuple[bytes, int]] | None = None

    def is_current(self) -> bool:
        group = self.world.group
        if not self.alive or not isinstance(group, ConsumerGroup):
            return False
        member = group.state.members.get(self.member_id)
        return member is not None and self.epoch in (member.member_epoch, member.previous_member_epoch)

    def request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self.must_tell_all:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = self.names
            request.subscribed_topic_regex = self.regex or ""
            request.server_assignor = self.assignor
        if self.must_tell_all and self.assigned is not None:
            self.owned = set(self.assigned)  # what it reports is where it has got to, not where it is on the way
        is_there = self.assigned is None or self.owned == self.assigned
        if self.must_tell_all or (is_there and self.told != frozenset(self.owned)):
            by_topic: dict[bytes, list[int]] = {}
            for topic_id, number in sorted(self.owned):
                by_topic.setdefault(topic_id, []).append(number)
            request.topic_partitions = [TopicPartitions(topic_id=t, partitions=n) for t, n in by_topic.items()]
        return request

    def beat(self) -> None:
        if not self.alive or self.stalled:
            return
        random, healthy = self.world.random, self.world.healthy
        request = self.request()
        telling = self.told if request.topic_partitions is None else frozenset(self.owned)
        fate = 1.0 if healthy else random.random()
        if fate < 0.05:  # lost on the way
            self.must_tell_all = True
            return
        answer = self.send(request)
        self.old_requests.append(request)
        if fate < 0.10:  # its connection broke: it tries once more, and two answers come
            answer = self.send(request)
        if fate < 0.20:  # the answer is lost
            self.must_tell_all = True
            return
        self.hear(answer, telling)

    def send(self, request: ConsumerGroupHeartbeatRequest):
        world = self.world
        return world.finish(consumer_heartbeat(world.shard, request, Caller("c", "/h", 1), world.now_ms))

    def send_late(self) -> None:
        """A request of an epoch that the member has left since comes out of some queue at last."""
        if self.old_requests and self.world.random.random() < 0.5:
            request = self.world.random.choice(self.old_requests)
            if 0 < request.member_epoch < self.epoch and self.is_current():
                self.send(request)

    def hear(self, answer, telling: frozenset[tuple[bytes, int]] | None) -> None:
        code = answer.error_code
        if code in REJOIN:
            self.rejoin()
        elif code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            self.must_tell_all = False
            self.told = telling
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                self.assigned = {(bytes(t.topic_id), n) for t in topics for n in t.partitions}
        else:
            assert code in (
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            ), code
            self.must_tell_all = True
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self.die()

    def reconcile(self) -> None:
        """First give up, then take: two steps, so that the world can change in between."""
        if self.assigned is None or not self.alive or self.stalled:
            return
        if self.owned - self.assigned:
            self.owned &= self.assigned
        else:
            self.owned = set(self.assigned)

    def resubscribe(self) -> None:
        self.names, self.regex = self.world.random.choice(SUBSCRIPTIONS)
        self.must_tell_all = True

    def leave(self) -> None:
        if self.alive:
            self.owned = set()
            self.send(
                ConsumerGroupHeartbeatRequest(
                    group_id=GROUP, member_id=self.member_id, member_epoch=-1, instance_id=self.instance_id
                )
            )
            self.alive = False

    def die(self) -> None:
        self.alive = False
        self.owned = set()

    def restart(self) -> None:
        """A static member stops, says so or not, and another process takes its place."""
        if not self.alive:
            return
        self.owned = set()
        if self.world.random.random() < 0.8:
            self.send(
                ConsumerGroupHeartbeatRequest(
                    group_id=GROUP, member_id=self.member_id, member_epoch=-2, instance_id=self.instance_id or "none"
                )
            )
        self.old_requests = []
        self.start()


class ClassicClient:
    """A consumer of the classic protocol, eager: it gives everything up before it joins."""

    def __init__(self, world: World, *, instance_id: str | None = None) -> None:
        self.world = world
        self.instance_id = instance_id
        self.names = world.random.choice([["a"], ["a", "b"]])
        self.alive = True
        self.stalled = False
        self.start()

    def start(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned: set[tuple[bytes, int]] = set()
        self.waiting: Deferred[Any] | None = None
        self.assigned_from: dict[str, tuple[bytes, int]] | None = None
        self.phase = "join"

    def is_current(self) -> bool:
        group = self.world.group
        if not self.alive or group is None:
            return False
        if isinstance(group, ConsumerGroup):
            member = group.state.members.get(self.member_id)
            return member is not None and member.member_epoch == self.generation
        return self.member_id in group.members and group.generation == self.generation

    def beat(self) -> None:
        if not self.alive or self.stalled:
            return
        if self.waiting is not None:
            if not self.waiting.done:
                return
            self.waiting = None
        if not self.world.healthy and self.world.random.random() < 0.05:
            return
        getattr(self, f"_{self.phase}")()

    def _await(self, answer, hear) -> None:
        if isinstance(answer, Deferred):
            self.waiting = answer
            answer.then(lambda response: hear(response) if self.waiting is answer else None)
        else:
            hear(answer)

    def _join(self) -> None:
        self.owned = set()
        metadata = b"\x00\x01" + len(self.names).to_bytes(4, "big")
        metadata += b"".join(len(name).to_bytes(2, "big") + name.encode() for name in self.names)
        metadata += b"\xff\xff\xff\xff" + bytes(4)
        assert read_subscription(metadata).topics == tuple(self.names)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        world = self.world
        self._await(world.finish(world.shard.join(request, Caller("c", "/h", 9), world.now_ms)), self._joined)

    def _joined(self, answer) -> None:
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.members = {each.member_id: read_subscription(each.metadata).topics for each in answer.members}
            self.leads, self.phase = answer.leader == self.member_id, "sync"
            self.assigns = self.leads and not answer.skip_assignment  # KIP-814
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self.die()
        else:
            assert code in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            ), code

    def _sync(self) -> None:
        world, request = self.world, SyncGroupRequest(group_id=GROUP, member_id=self.member_id)
        request.generation_id, request.group_instance_id = self.generation, self.instance_id
        if self.assigns:
            request.assignments = self._assignments()
        self._await(world.finish(world.shard.sync(request, Caller("c", "/h", 5), world.now_ms)), self._synced)

    def _assignments(self) -> list[SyncGroupRequestAssignment]:
        self.assigned_from = dict(self.world.sizes)
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in self.members}
        for name, (_, count) in self.world.sizes.items():
            takers = sorted(member_id for member_id, topics in self.members.items() if name in topics)
            for number in range(count if takers else 0):
                shares[takers[number % len(takers)]].setdefault(name, []).append(number)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=write_assignment(share, version=1))
            for member_id, share in shares.items()
        ]

    def _synced(self, answer) -> None:
        if answer.error_code == ErrorCode.NONE:
            self.phase = "heartbeat"
            sizes = self.world.sizes
            named = read_assignment(answer.assignment)
            self.owned = {(sizes[name][0], n) for name, numbers in named if name in sizes for n in numbers}
        else:
            self._again(answer.error_code)

    def _heartbeat(self) -> None:
        if self.leads and self.assigned_from != self.world.sizes:
            self.phase = "join"  # a leader watches the topics it assigns
            return
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        request.group_instance_id = self.instance_id
        code = self.world.finish(self.world.shard.heartbeat(request, self.world.now_ms))
        if code != ErrorCode.NONE:
            self._again(code)

    def _again(self, code: int) -> None:
        self.phase = "join"
        self.owned = set()
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.die()
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.generation = -1
            self.member_id = "" if code == ErrorCode.UNKNOWN_MEMBER_ID else self.member_id

    def leave(self) -> None:
        if self.alive:
            self.die()
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            request = LeaveGroupRequest(group_id=GROUP, members=[identity])
            self.world.finish(self.world.shard.leave(request, Caller("c", "/h", 5), self.world.now_ms))

    def die(self) -> None:
        self.alive = False
        self.owned = set()

    def restart(self) -> None:
        if self.alive:
            self.start()

    def reconcile(self) -> None: ...
    def send_late(self) -> None: ...
    def resubscribe(self) -> None: ...


def new_client(world: World):
    random = world.random
    instance_id = random.choice("xy") if random.random() < 0.2 else None
    if any(client.alive and client.instance_id == instance_id for client in world.clients):
        instance_id = None
    kind = ClassicClient if world.mixed and random.random() < 0.5 else Client
    return kind(world, instance_id=instance_id)


def step(world: World) -> None:
    random = world.random
    chance = random.random()
    client = random.choice(world.clients) if world.clients else None
    if client is None or (chance < 0.05 and len(world.clients) < 5):
        world.clients.append(new_client(world))
    elif chance < 0.07:
        client.leave()
    elif chance < 0.10:
        client.die()
    elif chance < 0.13:
        client.stalled = not client.stalled
    elif chance < 0.17:
        client.restart() if client.instance_id else client.resubscribe()
    elif chance < 0.20:
        world.change_topics()
    elif chance < 0.22:
        world.restart()
    elif chance < 0.26:
        client.send_late()
    elif chance < 0.36:
        world.pass_time(random.choice([1, 100, 5_000, 5_000, 31_000, 46_000]))
    elif chance < 0.50:
        client.reconcile()
    else:
        client.beat()
    world.clients = [each for each in world.clients if each.alive]


def settle(world: World) -> None:
    """The faults end: every live member beats and does what it is told, and time passes."""
    world.healthy = True
    for client in world.clients:
        client.stalled = False
    trouble = ""
    for _ in range(200):
        for client in list(world.clients):
            client.beat()
            client.reconcile()
            client.reconcile()
        world.pass_time(1_000)
        world.clients = [each for each in world.clients if each.alive]
        trouble = what_is_left_to_do(world)
        if not trouble:
            return
    raise AssertionError(trouble)


def what_is_left_to_do(world: World) -> str:
    members = [client for client in world.clients if client.is_current()]
    if len(members) < min(len(world.clients), CONFIG.group_consumer_max_size):
        return "a live client is not a member"
    owned = [partition for client in members for partition in client.owned]
    wanted = frozenset().union(*(subscribed(client) for client in members))
    if set(owned) != wanted or len(owned) != len(wanted):
        return f"owned are {owned}, wanted are {wanted}"
    group = world.group
    if not members:
        return ""
    if isinstance(group, ConsumerGroup) is not any(isinstance(client, Client) for client in members):
        return "the group is not of its members' kind"
    return "" if group.state_name == "Stable" else f"the group is {group.state_name}"


def subscribed(client: Client | ClassicClient) -> frozenset[tuple[bytes, int]]:
    regex = getattr(client, "regex", None)
    names = {name for name in client.world.sizes if name in client.names or (regex and re.fullmatch(regex, name))}
    sizes = [client.world.sizes[name] for name in names]
    return frozenset((topic_id, number) for topic_id, count in sizes for number in range(count))


def run(seed: int, *, mixed: bool) -> None:
    world = World(Random(seed), mixed=mixed)
    for _ in range(STEPS):
        step(world)
    settle(world)
    world.restart()
    settle(world)


@pytest.mark.parametrize("mixed", [False, True], ids=["consumer", "mixed"])
def test_no_partition_is_ever_with_two_members_and_in_the_end_each_is_with_one(mixed):
    run_histories(partial(run, mixed=mixed), count=HISTORIES)
