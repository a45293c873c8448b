"""Who may lead, and who must not be disturbed."""

from __future__ import annotations

from random import Random

from raft_simulation.scenario import Quorum

from tidemark.raft import Leadership, Node
from tidemark.raft.messages import AppendEntries, RequestPreVote, RequestVote, TimeoutNow, VoteResponse


def test_the_first_to_miss_a_leader_is_elected() -> None:
    quorum = Quorum()
    leader = quorum.elect(2)
    assert leader.is_leader
    assert [quorum[n].get_leader() for n in (1, 2, 3)] == [Leadership(leader_id=2, epoch=1)] * 3


def test_a_vote_survives_a_restart() -> None:
    quorum = Quorum()
    quorum.step(3, RequestVote(sender=1, term=5, last_index=0, last_term=0, forced=False))
    quorum.restart(3)
    quorum.step(3, RequestVote(sender=2, term=5, last_index=0, last_term=0, forced=False))
    assert [message.granted for message in quorum.of_type(VoteResponse)] == [True, False]  # type: ignore[union-attr]


def test_a_vote_leaves_only_after_it_is_saved() -> None:
    node = Node(1, [1, 2, 3], random=Random(1))
    node.step(RequestVote(sender=2, term=1, last_index=0, last_term=0, forced=False), 0.0)
    assert node.take_urgent() == []
    effects = node.take()
    assert effects.hard_state is not None
    assert (effects.hard_state.term, effects.hard_state.vote) == (1, 2)
    assert effects.messages == ((2, VoteResponse(sender=1, term=1, granted=True)),)


def test_a_candidate_counts_its_own_vote_only_after_it_is_saved() -> None:
    node = Node(1, [1], random=Random(1))
    node.tick(0.0)
    effects = node.take()
    assert not node.is_leader
    node.saved(effects)
    assert node.is_leader


def test_a_node_with_an_older_log_is_not_elected() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.isolate(3)
    quorum[1].propose(b"missed by 3")
    quorum.settle()
    quorum.heal()
    quorum.crash(1)
    assert not quorum.elect(3).is_leader
    assert quorum.elect(2).is_leader


def test_pre_vote_keeps_a_cut_off_node_from_raising_its_term() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.isolate(3)
    for _ in range(50):
        quorum.pass_time(1.0)
    assert quorum[3].term == 1
    quorum.heal()
    quorum.beat()
    assert quorum[1].is_leader
    assert quorum[3].leader_id == 1


def test_a_follower_that_hears_its_leader_helps_nobody_else() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.beat()
    quorum.step(2, RequestPreVote(sender=3, term=1, last_index=9, last_term=9))
    quorum.step(2, RequestVote(sender=3, term=9, last_index=9, last_term=9, forced=False))
    assert quorum[2].term == 1
    assert quorum[1].is_leader


def test_a_leader_that_reaches_no_majority_steps_down() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.isolate(1)
    for _ in range(17):
        quorum.beat()
    assert not quorum[1].is_leader
    assert quorum[1].term == 1
    assert quorum[1].get_leader() is None


def test_a_leader_that_hears_no_answers_steps_down_though_its_messages_arrive() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.cuts = {(2, 1), (3, 1)}
    for _ in range(17):
        quorum.beat()
    assert not quorum[1].is_leader


def test_a_leader_whose_only_other_voter_stands_still_for_a_moment_goes_on_leading() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.crash(3)
    quorum.cuts = {(2, 1)}
    for _ in range(12):  # longer than a follower's shortest wait
        quorum.beat()
    quorum.cuts = set()
    quorum.beat()
    assert quorum[1].is_leader
    assert quorum[1].term == 1


def test_an_old_leader_is_told_of_the_newer_term() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.isolate(1)
    quorum.elect(2)
    quorum.heal()
    quorum[1].propose(b"too late")
    quorum.beat()
    assert not quorum[1].is_leader
    assert quorum[1].term == 2
    assert quorum[1].leader_id == 2


def test_a_pre_vote_from_a_node_whose_term_lags_still_counts() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.isolate(3)
    for leader in (2, 1, 2):
        quorum.restart(3 - leader)
        quorum.elect(leader)
    quorum.crash(1)
    quorum.heal()
    assert quorum[3].term < quorum[2].term
    assert quorum.elect(2).is_leader


def test_a_broken_connection_starts_an_election_only_with_a_majority_that_lost_the_leader() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.beat()
    quorum[2].lose_leader(1, quorum.now)
    quorum.pass_time(0.6, only=[2])
    assert quorum[1].is_leader
    assert quorum[2].term == 1
    quorum.crash(1)
    quorum[3].lose_leader(1, quorum.now)
    quorum.pass_time(2.0, only=[2])
    assert quorum[2].is_leader


def test_leadership_is_transferred_to_a_node_that_holds_everything() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    leader.propose(b"a")
    leader.transfer_leadership(3, quorum.now)
    quorum.settle()
    assert quorum[3].is_leader
    assert quorum[3].term == 2
    assert not quorum[1].is_leader
    assert quorum.payloads(3) == [b"a"]


def test_a_transfer_that_fails_is_given_up() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    quorum.isolate(3)
    leader.transfer_leadership(3, quorum.now)
    for _ in range(11):
        quorum.beat()
    assert leader.is_leader
    assert leader.propose(b"on we go")


def test_an_order_to_stand_from_an_older_term_is_ignored() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.elect(2)
    quorum.step(3, TimeoutNow(sender=1, term=1))
    assert quorum[3].term == 2
    assert quorum[2].is_leader


def test_a_second_leader_of_one_term_is_not_believed() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    quorum.step(1, AppendEntries(sender=2, term=1, prev_index=0, prev_term=0, commit_index=0, round=1))
    assert leader.is_leader
