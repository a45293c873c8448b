"""A read is answered only by a leader that proved it still leads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_simulation.scenario import Quorum

from tidemark.raft import NotLeader, Overloaded, RaftSettings
from tidemark.raft.messages import AppendEntries

TIMES = RaftSettings(heartbeat_interval=1.0, election_timeout=10.0)
LEASES = replace(TIMES, lease_reads=True)


def test_a_read_waits_for_a_majority_to_confirm_the_leader() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    index = leader.propose(b"a")
    quorum.settle()
    token = leader.read(quorum.now)
    assert quorum.reads[1] == {}
    quorum.settle()
    assert quorum.reads[1] == {token: index}


def test_a_leader_that_was_replaced_answers_nothing() -> None:
    quorum = Quorum()
    old = quorum.elect(1)
    quorum.isolate(1)
    new = quorum.elect(2)
    new.propose(b"unknown to 1")
    quorum.settle()
    old.read(old.now)
    quorum.settle()
    assert old.is_leader
    assert quorum.reads[1] == {}


def test_answers_to_rounds_before_the_read_do_not_count() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    quorum.beat()
    quorum.isolate(1)
    leader.read(quorum.now)
    quorum.settle()
    assert quorum.reads[1] == {}
    quorum.heal()
    quorum.beat()
    assert len(quorum.reads[1]) == 1


def test_a_new_leader_reads_no_earlier_than_its_own_first_entry() -> None:
    quorum = Quorum()
    quorum.elect(1).propose(b"a")
    quorum.settle()
    quorum.crash(1)
    leader = quorum.elect(2)
    token = leader.read(quorum.now)
    quorum.settle()
    assert quorum.reads[2][token] == leader.log.last_index


def test_many_reads_share_one_round() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    quorum.sent.clear()
    for _ in range(100):
        leader.read(quorum.now)
    quorum.settle()
    assert len(quorum.reads[1]) == 100
    assert len(quorum.sent) == 4  # one message to each peer, and the answers


def test_reads_have_a_limit_and_need_a_leader() -> None:
    quorum = Quorum(settings=replace(TIMES, reads_max=2))
    leader = quorum.elect(1)
    leader.read(quorum.now)
    leader.read(quorum.now)
    with pytest.raises(Overloaded):
        leader.read(quorum.now)
    with pytest.raises(NotLeader):
        quorum[2].read(quorum.now)


def test_under_a_lease_a_read_is_answered_at_once() -> None:
    quorum = Quorum(settings=LEASES)
    leader = quorum.elect(1)
    quorum.beat()
    quorum.isolate(1)
    token = leader.read(quorum.now + LEASES.lease / 2)
    quorum.settle()
    assert token in quorum.reads[1]


def test_a_lease_ends_before_any_follower_may_vote_again() -> None:
    quorum = Quorum(settings=LEASES)
    leader = quorum.elect(1)
    quorum.beat()
    quorum.isolate(1)
    leader.read(quorum.now + LEASES.lease)
    quorum.settle()
    assert quorum.reads[1] == {}
    assert LEASES.lease * (1 + LEASES.clock_drift_max) / (1 - LEASES.clock_drift_max) <= LEASES.election_timeout + 1e-9


def test_no_lease_holds_after_the_leader_called_an_election() -> None:
    quorum = Quorum(settings=LEASES)
    leader = quorum.elect(1)
    quorum.beat()
    quorum.cuts = {(1, 3)}
    leader.transfer_leadership(3, quorum.now)
    quorum.settle()
    leader.read(quorum.now)
    assert not quorum.reads[1]


def test_under_leases_a_restarted_node_keeps_the_promise_it_may_have_made() -> None:
    quorum = Quorum(settings=LEASES)
    quorum.elect(1)
    quorum.beat()
    quorum.restart(2)
    quorum.isolate(1)
    quorum[3].become_pre_candidate()
    quorum.settle()
    assert quorum[3].term == 1


def test_the_refusal_of_a_message_from_an_older_term_confirms_no_round_of_the_present_one() -> None:
    """Found by simulation: a node led twice, and an answer to its first term counted in its second."""
    quorum = Quorum()
    quorum.elect(1)
    for _ in range(20):
        quorum.beat()
    late = [message for to, message in quorum.sent if to == 2 and isinstance(message, AppendEntries)][-1]
    quorum.elect(2)
    leader = quorum.elect(1)
    assert late.term < leader.term
    quorum.cuts |= {(1, 2), (1, 3)}  # the others may elect another leader any time now
    leader.read(quorum.now)
    quorum.step(2, late)
    assert quorum.reads[1] == {}
