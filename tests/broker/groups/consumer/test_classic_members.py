"""Members that speak the classic protocol in a consumer group, and a group's way there and back."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.consumer.embedded_protocol import read_assignment, write_assignment
from tidemark.broker.groups.consumer.group import ConsumerGroup
from tidemark.broker.groups.group import Caller
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


class ClassicMember:
    def __init__(self, coordinator, *, instance_id=None, protocol="range", protocol_type="consumer"):
        self.coordinator = coordinator
        self.instance_id = instance_id
        self.protocol = protocol
        self.protocol_type = protocol_type
        self.member_id = ""
        self.generation = -1

    def join(self, *, owned=(), topics=("t",)):
        data = struct.pack(">hi", 1, len(topics)) + b"".join(struct.pack(">h1s", 1, t.encode()) for t in topics)
        data += struct.pack(">i", -1) + struct.pack(">i", 1 if owned else 0)
        data += struct.pack(f">h1si{len(owned)}i", 1, b"t", len(owned), *owned) if owned else b""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=data)],
        )
        answer = self._ask(self.coordinator.shard.join, request, 9)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = answer.member_id
            answer = self._ask(self.coordinator.shard.join, request, 9)
        if not isinstance(answer, Deferred) and answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, **shares):
        request = SyncGroupRequest(group_id="g", generation_id=self.generation, member_id=self.member_id)
        request.group_instance_id = self.instance_id
        request.assignments = [
            SyncGroupRequestAssignment(member_id=name, assignment=share) for name, share in shares.items()
        ]
        return self._ask(self.coordinator.shard.sync, request, 5)

    def share(self):
        answer = self.sync()
        assert answer.error_code == ErrorCode.NONE
        return {name: list(numbers) for name, numbers in read_assignment(answer.assignment)}

    def beat(self):
        request = HeartbeatRequest(group_id="g", generation_id=self.generation, member_id=self.member_id)
        request.group_instance_id = self.instance_id
        return self.coordinator.shard.heartbeat(request, self.coordinator.now_ms)

    def leave(self):
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        return self._ask(self.coordinator.shard.leave, LeaveGroupRequest(group_id="g", members=[identity]), 5)

    def _ask(self, ask, request, version):
        coordinator = self.coordinator
        answer = coordinator.finish(ask(request, Caller("classic", "/h", version), coordinator.now_ms))
        replies, coordinator.shard.replies = coordinator.shard.replies, []
        for deferred, response in replies:
            deferred.resolve(response)
        if isinstance(answer, Deferred):
            heard: list[Any] = []
            answer.then(heard.append)
            return heard[0] if heard else answer
        return answer


@pytest.fixture
def coordinator(new_coordinator):
    return new_coordinator(group_initial_rebalance_delay_ms=0)


@pytest.fixture
def classic(coordinator):
    """A classic group of one, stable, with everything."""
    member = ClassicMember(coordinator)
    assert member.join().leader == member.member_id
    share = write_assignment({"t": [0, 1, 2, 3]}, version=1)
    assert member.sync(**{member.member_id: share}).error_code == 0
    return member


def test_a_consumer_that_joins_turns_a_classic_group_into_a_consumer_group(coordinator, classic):
    joined = coordinator.join("new")
    assert isinstance(coordinator.group, ConsumerGroup)
    assert (joined.member_epoch, coordinator.share(joined)) == (2, {})
    assert classic.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert classic.join(owned=()).generation_id == 2, "eager: it came without anything"
    assert classic.share() == {"t": [0, 1]}
    assert coordinator.share(coordinator.beat("new", 2)) == {"t": [2, 3]}
    assert classic.beat() == ErrorCode.NONE
    replayed = coordinator.replayed().groups["g"]
    assert isinstance(replayed, ConsumerGroup)
    assert replayed.state.members == coordinator.group.state.members


def test_a_cooperative_member_gives_up_before_it_moves_on(coordinator, classic):
    coordinator.join("new")
    assert classic.join(owned=(0, 1, 2, 3)).generation_id == 1
    assert classic.share() == {"t": [0, 1]}
    assert classic.beat() == ErrorCode.REBALANCE_IN_PROGRESS, "to say what it gave up, it has to join again"
    assert coordinator.share(coordinator.beat("new", 2)) is None
    assert classic.join(owned=(0, 1)).generation_id == 2
    assert coordinator.share(coordinator.beat("new", 2)) == {"t": [2, 3]}


def test_whoever_waits_in_a_rebalance_is_asked_to_join_again(coordinator, classic):
    other = ClassicMember(coordinator)
    waiting = other.join()
    assert isinstance(waiting, Deferred)
    coordinator.join("new")
    replies = coordinator.shard.replies
    assert [answer.error_code for _, answer in replies] == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_the_last_consumer_that_leaves_turns_it_back(coordinator, classic):
    coordinator.join("new")
    classic.join()
    classic.sync()
    coordinator.beat("new", -1)
    group = coordinator.group
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, group.generation, set(group.members)) == ("PreparingRebalance", 2, {classic.member_id})
    assert classic.join().generation_id == 3
    assert isinstance(coordinator.replayed().groups["g"], ClassicGroup)


def test_a_static_member_that_comes_back_with_the_classic_protocol_turns_it_back_without_a_rebalance(coordinator):
    coordinator.join("new", instance_id="i")
    coordinator.beat("new", -2, instance_id="i")
    old = ClassicMember(coordinator, instance_id="i")
    assert old.join().error_code == 0
    group = coordinator.group
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, old.share()) == ("Stable", {"t": [0, 1, 2, 3]})


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_no_upgrade_where_the_policy_is_against_it(new_coordinator, policy):
    coordinator = new_coordinator(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
    ClassicMember(coordinator).join()
    assert coordinator.join("new").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(coordinator.group, ClassicGroup)


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_no_downgrade_where_the_policy_is_against_it(new_coordinator, policy):
    coordinator = new_coordinator(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
    coordinator.join("new")
    old = ClassicMember(coordinator)
    old.join()
    coordinator.beat("new", -1)
    assert isinstance(coordinator.group, ConsumerGroup)


def test_a_group_that_is_not_of_consumers_is_not_upgraded(coordinator):
    ClassicMember(coordinator, protocol_type="connect").join()
    assert coordinator.join("new").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_becomes_what_joins_it(coordinator):
    coordinator.join("new")
    coordinator.beat("new", -1)
    old = ClassicMember(coordinator)
    assert old.join().leader == old.member_id
    assert isinstance(coordinator.group, ClassicGroup)
    old.leave()
    assert coordinator.join("new").error_code == 0
    assert isinstance(coordinator.group, ConsumerGroup)


def test_a_classic_member_that_does_not_join_again_in_time_is_fenced(coordinator, classic):
    coordinator.join("new")
    assert classic.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(13):
        coordinator.pass_time(5_000)
        classic.beat()
        coordinator.beat("new", coordinator.group.state.members["new"].member_epoch)
    assert classic.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_classic_members_may_not(coordinator, classic):
    coordinator.join("new")
    classic.join()
    assert ClassicMember(coordinator, protocol="sticky").join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ClassicMember(coordinator, protocol_type="x").join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    classic.generation += 1
    assert classic.beat() == ErrorCode.ILLEGAL_GENERATION
    assert classic.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    stranger = ClassicMember(coordinator)
    stranger.member_id, stranger.generation = "new", 2
    assert stranger.beat() == ErrorCode.UNKNOWN_MEMBER_ID, "new does not speak the classic protocol"
    stranger.member_id = "nobody"
    assert stranger.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
