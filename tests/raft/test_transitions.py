"""A node's changes of state assert what they assume: a mistake stops the node before it misleads the others."""

from __future__ import annotations

from random import Random

import pytest
from raft_simulation.scenario import Quorum

from tidemark.raft import Entry, HardState, Node, Saved
from tidemark.raft.configuration import Configuration
from tidemark.raft.entry import Snapshot


def new_node() -> Node:
    return Node(1, (1, 2, 3), random=Random(1))


def test_a_follower_never_becomes_leader_without_being_a_candidate() -> None:
    with pytest.raises(AssertionError, match="Follower -> leader"):
        new_node().become_leader()


def test_a_pre_candidate_never_becomes_leader() -> None:
    node = new_node()
    node.become_pre_candidate()
    with pytest.raises(AssertionError, match="pre-candidate -> leader"):
        node.become_leader()


def test_a_leader_never_stands_for_election() -> None:
    node = Quorum(3).elect(1)
    with pytest.raises(AssertionError, match="leader -> candidate"):
        node.become_candidate()
    with pytest.raises(AssertionError, match="leader -> pre-candidate"):
        node.become_pre_candidate()


def test_a_node_without_a_vote_never_becomes_a_candidate() -> None:
    node = Node(4, (1, 2, 3), random=Random(1))
    with pytest.raises(AssertionError, match="only a voter"):
        node.become_candidate()


def test_a_term_never_goes_back() -> None:
    node = new_node()
    node.become_follower(5, leader_id=None)
    with pytest.raises(AssertionError, match="5 -> 4"):
        node.become_follower(4, leader_id=None)


def test_a_vote_is_cast_once_per_term() -> None:
    node = new_node()
    node._cast_vote(2)
    node._cast_vote(2)
    with pytest.raises(AssertionError, match="voted for 2"):
        node._cast_vote(3)
    node.become_follower(1, leader_id=None)
    node._cast_vote(3)


def test_the_commit_index_is_never_beyond_the_log() -> None:
    with pytest.raises(AssertionError, match="beyond the log"):
        new_node().commit_to(1)


def test_a_snapshot_never_takes_back_what_is_committed() -> None:
    quorum = Quorum(3)
    node = quorum.elect(1)
    snapshot = Snapshot(index=node.commit_index, term=1, configuration=Configuration(), data=b"")
    with pytest.raises(AssertionError, match="never taken back"):
        node.restore(snapshot)


def test_a_node_refuses_to_start_with_entries_of_a_term_that_it_has_not_seen() -> None:
    saved = Saved(hard_state=HardState(term=1), entries=(Entry(2, 1, b""),))
    with pytest.raises(AssertionError, match="before the entries"):
        Node(1, (1, 2, 3), random=Random(1), saved=saved)
