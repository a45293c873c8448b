"""How logs become equal, and when an entry is committed."""

from __future__ import annotations

from random import Random

import pytest
from raft_simulation.scenario import Quorum

from tidemark.raft import Entry, HardState, NotLeader, Overloaded, RaftSettings, Saved, StaleEpoch
from tidemark.raft.messages import AppendAccepted, AppendEntries, AppendRejected
from tidemark.raft.node import Node


def entries_of(node: Node) -> list[tuple[int, int]]:
    count = node.log.last_index - node.log.base_index
    entries = node.log.between(
        first=node.log.first_index, last=node.log.last_index, bytes_max=1 << 30, entries_max=count
    )
    return [(entry.index, entry.term) for entry in entries]


def test_what_a_majority_holds_is_committed_and_applied_everywhere() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    leader.propose(b"a")
    leader.propose(b"b")
    quorum.settle()
    assert [quorum.payloads(n) for n in (1, 2, 3)] == [[b"a", b"b"]] * 3


def test_nothing_is_committed_without_a_majority() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    quorum.isolate(1)
    leader.propose(b"alone")
    quorum.settle()
    assert quorum.payloads(1) == []


def test_an_acknowledgement_leaves_only_after_the_entries_are_saved() -> None:
    follower = Node(2, [1, 2, 3], random=Random(1))
    entry = Entry(1, 1, b"a")
    message = AppendEntries(sender=1, term=1, prev_index=0, prev_term=0, commit_index=0, round=1, entries=(entry,))
    follower.step(message, 0.0)
    assert follower.take_urgent() == []
    effects = follower.take()
    assert effects.entries == (entry,)
    assert effects.messages == ((1, AppendAccepted(sender=2, term=1, match_index=1, round=1)),)


def test_a_leader_counts_itself_only_by_what_its_disk_holds() -> None:
    quorum = Quorum(1)
    leader = quorum.elect(1)
    leader.propose(b"a")
    effects = leader.take()
    assert leader.commit_index == 1
    leader.saved(effects)
    assert leader.commit_index == 2


def test_a_leader_sends_before_its_own_disk_is_done() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    leader.propose(b"a")
    assert {to for to, _ in leader.take_urgent()} == {2, 3}


def test_entries_nobody_else_got_are_replaced() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.isolate(1)
    for payload in (b"lost", b"lost too"):
        quorum[1].propose(payload)
    quorum.settle()
    quorum.elect(2)
    quorum[2].propose(b"kept")
    quorum.settle()
    quorum.heal()
    quorum.beat()
    quorum.beat()
    assert entries_of(quorum[1]) == entries_of(quorum[2])
    assert quorum.payloads(1) == [b"kept"]


def test_a_leader_backs_up_by_whole_terms() -> None:
    """Figure 7 of the paper, made long: sixty entries of two foreign terms cost two questions, not sixty."""
    mine = [Entry(1, index, b"") for index in range(1, 5)]
    theirs = [Entry(2, index, b"") for index in range(5, 35)] + [Entry(3, index, b"") for index in range(35, 65)]
    leader = Node(1, [1, 2], random=Random(1), saved=Saved(hard_state=HardState(term=8), entries=tuple(mine)))
    follower = Node(2, [1, 2], random=Random(2), saved=Saved(hard_state=HardState(term=3), entries=(*mine, *theirs)))
    leader.become_candidate()
    leader.become_leader()
    rejections = 0
    for _ in range(10):
        for _, message in leader.take_urgent():
            follower.step(message, 0.0)
        effects = follower.take()
        follower.saved(effects)
        for _, message in effects.messages:
            rejections += isinstance(message, AppendRejected)
            leader.step(message, 0.0)
    assert entries_of(follower) == entries_of(leader)
    assert rejections <= 2


def test_an_entry_of_an_older_term_is_not_committed_by_counting() -> None:
    """Figure 8 of the paper."""
    quorum = Quorum(5)
    old = Entry(1, 1, b"old")
    quorum.disks[1].entries = [old]
    quorum.disks[1].hard_state = HardState(term=1)
    quorum.restart(1)
    quorum.refused = lambda message: isinstance(message, AppendEntries)
    leader = quorum.elect(1)
    assert leader.is_leader
    leader.log.persisted_index = 1
    for follower in (2, 3):
        leader.step(AppendAccepted(sender=follower, term=leader.term, match_index=1, round=0), quorum.now)
    assert leader.commit_index == 0
    leader.log.persisted_index = 2
    for follower in (2, 3):
        leader.step(AppendAccepted(sender=follower, term=leader.term, match_index=2, round=0), quorum.now)
    assert leader.commit_index == 2


def test_a_delayed_append_does_not_cut_off_what_came_after_it() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    first = leader.propose(b"a")
    leader.propose(b"b")
    quorum.settle()
    entry = Entry(leader.term, first, b"a")
    late = AppendEntries(sender=1, term=1, prev_index=first - 1, prev_term=1, commit_index=0, round=0, entries=(entry,))
    quorum.step(2, late)
    assert quorum[2].log.last_index == first + 1


def test_commit_never_passes_what_the_message_proves() -> None:
    saved = Saved(hard_state=HardState(term=1), entries=(Entry(1, 1, b"x"), Entry(1, 2, b"y")))
    follower = Node(2, [1, 2, 3], random=Random(1), saved=saved)
    follower.step(AppendEntries(sender=1, term=2, prev_index=1, prev_term=1, commit_index=2, round=1), 0.0)
    assert follower.commit_index == 1


def test_lost_messages_are_sent_again() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    quorum.refused = lambda message: isinstance(message, AppendEntries)
    for number in range(10):
        leader.propose(b"%d" % number)
        quorum.settle()
    quorum.refused = lambda message: False
    for _ in range(3):
        quorum.beat()
    assert quorum.payloads(3) == [b"%d" % number for number in range(10)]


def test_one_message_stays_within_its_limits() -> None:
    quorum = Quorum(
        settings=RaftSettings(heartbeat_interval=1.0, election_timeout=10.0, append_bytes_max=10, inflight_max=4)
    )
    leader = quorum.elect(1)
    quorum.sent.clear()
    for _ in range(100):
        leader.propose(b"four")
    urgent = [message for to, message in leader.take_urgent() if to == 2]
    assert [len(message.entries) for message in urgent if isinstance(message, AppendEntries)] == [2, 2, 2, 2]
    quorum.settle()
    quorum.beat()
    quorum.beat()
    quorum.beat()
    assert len(quorum.payloads(3)) == 100


def test_proposals_beyond_the_limit_are_refused() -> None:
    limits = RaftSettings(heartbeat_interval=1.0, election_timeout=10.0, uncommitted_bytes_max=10, entry_bytes_max=8)
    quorum = Quorum(settings=limits)
    leader = quorum.elect(1)
    with pytest.raises(Overloaded):
        leader.propose(b"far too long")
    leader.propose(b"12345678")
    with pytest.raises(Overloaded):
        leader.propose(b"345")
    quorum.settle()
    assert leader.propose(b"345")


def test_only_the_leader_of_the_epoch_takes_proposals() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    with pytest.raises(NotLeader) as refusal:
        quorum[2].propose(b"no")
    assert refusal.value.leader == 1
    with pytest.raises(StaleEpoch):
        leader.propose(b"no", epoch=leader.term - 1)
    assert leader.propose(b"yes", epoch=leader.term)


def test_a_leader_knows_how_far_each_member_has_come() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    quorum.isolate(3)
    index = leader.propose(b"a")
    quorum.settle()
    assert [(replica.member.node_id, replica.match_index) for replica in leader.replicas()] == [
        (1, index),
        (2, index),
        (3, index - 1),
    ]
    with pytest.raises(NotLeader):
        quorum[2].replicas()


def test_an_acknowledgement_of_what_was_never_sent_is_not_believed() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    for follower in (2, 3):
        quorum.step(1, AppendAccepted(sender=follower, term=1, match_index=99, round=0))
    assert leader.commit_index == leader.log.last_index == 1
