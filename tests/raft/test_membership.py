"""Nodes come and go one at a time, while the quorum works on."""

from __future__ import annotations

import pytest
from raft_simulation.scenario import Quorum

from tidemark.raft import (
    ChangePending,
    Configuration,
    Kind,
    NotCaughtUp,
    RaftSettings,
    TransferPending,
    UnknownMember,
)
from tidemark.raft.messages import AppendEntries

LIMITS = RaftSettings(heartbeat_interval=1.0, election_timeout=10.0, catch_up_entries_max=2)


def test_a_learner_follows_but_does_not_vote() -> None:
    quorum = Quorum(3, spares=1)
    leader = quorum.elect(1)
    leader.propose(b"before")
    quorum.settle()
    leader.add_learner(4)
    quorum.settle()
    assert quorum.payloads(4) == [b"before"]
    assert quorum[4].configuration == Configuration.of([1, 2, 3], learners=[4])
    quorum.cuts = {(2, 1), (3, 1)}
    leader.propose(b"needs two voters")
    quorum.settle()
    assert quorum.payloads(1) == [b"before"]


def test_a_learner_that_caught_up_becomes_a_voter() -> None:
    quorum = Quorum(1, spares=1)
    leader = quorum.elect(1)
    leader.add_learner(2, detail=b"127.0.0.1:9093")
    quorum.settle()
    leader.add_voter(2)
    quorum.settle()
    assert [quorum[n].configuration.voters for n in (1, 2)] == [(1, 2)] * 2
    assert quorum[2].configuration.members[1].detail == b"127.0.0.1:9093"
    quorum.isolate(2)
    leader.propose(b"now both are needed")
    quorum.settle()
    assert quorum.payloads(1) == []


def test_a_learner_that_lags_does_not_become_a_voter() -> None:
    quorum = Quorum(1, spares=1, settings=LIMITS)
    leader = quorum.elect(1)
    quorum.isolate(2)
    leader.add_learner(2)
    for _ in range(3):
        leader.propose(b"missed")
    quorum.settle()
    with pytest.raises(NotCaughtUp, match="lacks"):
        leader.add_voter(2)
    quorum.heal()
    quorum.beat()
    quorum.beat()
    assert leader.add_voter(2)


def test_one_change_at_a_time() -> None:
    quorum = Quorum(3, spares=2)
    leader = quorum.elect(1)
    leader.add_learner(4)
    with pytest.raises(ChangePending, match="not committed"):
        leader.add_learner(5)
    quorum.settle()
    assert leader.add_learner(5)


def test_no_change_before_the_leader_has_committed_in_its_term() -> None:
    quorum = Quorum(3, spares=1)
    quorum.refused = lambda message: isinstance(message, AppendEntries)
    leader = quorum.elect(1)
    with pytest.raises(ChangePending, match="of its term"):
        leader.add_learner(4)


def test_no_change_during_a_transfer() -> None:
    quorum = Quorum(3, spares=1)
    leader = quorum.elect(1)
    quorum.isolate(2)
    leader.transfer_leadership(2, quorum.now)
    with pytest.raises(TransferPending):
        leader.add_learner(4)
    with pytest.raises(TransferPending):
        leader.propose(b"later")


def test_a_removed_node_cannot_disturb_those_that_stay() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(1)
    quorum.isolate(3)
    leader.remove_member(3)
    quorum.settle()
    quorum.heal()
    for _ in range(50):
        quorum.pass_time(1.0)
    assert leader.is_leader
    assert leader.term == 1
    assert leader.configuration.voters == (1, 2)


def test_a_leader_that_is_removed_leads_until_that_is_committed_and_then_hands_over() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(1)
    leader.propose(b"before")
    leader.remove_member(1)
    assert leader.is_leader
    quorum.settle()
    assert not leader.is_leader
    successor = next(quorum[n] for n in (2, 3) if quorum[n].is_leader)
    assert successor.configuration.voters == (2, 3)
    assert successor.propose(b"after")
    quorum.settle()
    assert quorum.payloads(2) == [b"before", b"after"]
    assert not quorum[1].may_campaign


def test_a_node_whose_removal_is_not_committed_may_still_be_needed_to_lead() -> None:
    """Its log is the longest, so the other cannot be elected without it, and it finishes its own removal."""
    quorum = Quorum(2)
    leader = quorum.elect(1)
    quorum.refused = lambda message: isinstance(message, AppendEntries)
    leader.remove_member(1)
    quorum.settle()
    quorum.restart(1)
    quorum.refused = lambda message: False
    quorum.elect(1)
    quorum.beat()
    quorum.settle()
    assert quorum[2].is_leader
    assert quorum[2].configuration.voters == (2,)


def test_a_configuration_that_is_truncated_is_no_longer_in_force() -> None:
    quorum = Quorum(3, spares=1)
    quorum.elect(1)
    quorum.isolate(1)
    quorum[1].add_learner(4)
    quorum.settle()
    assert quorum[1].configuration.learners == (4,)
    quorum.elect(2)
    quorum.heal()
    quorum.beat()
    quorum.beat()
    assert quorum[1].configuration.learners == ()  # type: ignore[comparison-overlap]


def test_a_member_can_move() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(1)
    leader.update_member(2, detail=b"new place")
    quorum.settle()
    member = quorum[3].configuration.member(2)
    assert member is not None
    assert member.detail == b"new place"
    assert member.is_voter
    assert any(entry.kind is Kind.CONFIGURATION for entry in quorum.applied[3])


def test_what_makes_no_sense_is_refused() -> None:
    quorum = Quorum(1)
    leader = quorum.elect(1)
    for nonsense in (
        lambda: leader.remove_member(1),
        lambda: leader.remove_member(7),
        lambda: leader.add_voter(7),
        lambda: leader.add_learner(1),
        lambda: leader.update_member(7, detail=b""),
        lambda: leader.transfer_leadership(7, quorum.now),
    ):
        with pytest.raises(UnknownMember):
            nonsense()


def test_a_leader_that_removed_itself_stands_again_after_a_restart_though_its_commit_index_lags() -> None:
    """Seed 459: node 3's log is the longest, so no other can win; it had a vote only after its commit index."""
    quorum = Quorum(2, spares=1)
    quorum.elect(1)
    quorum[1].add_learner(3)
    quorum.settle()
    quorum[1].add_voter(3)
    quorum.settle()
    quorum.elect(3)
    quorum.isolate(3)
    quorum[3].remove_member(3)
    quorum.settle()
    quorum.heal()
    quorum.restart(3)
    assert quorum[3].commit_index == 0
    assert quorum[3].configuration.voters == (1, 2)
    assert quorum[3].may_campaign
