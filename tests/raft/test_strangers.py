"""Messages that no member can have sent: they change nothing, and a flood of them fills no log."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from raft_simulation.scenario import Quorum

from tidemark.raft import DroppedMessages, MessageCorrupt
from tidemark.raft.codec import TERM_MAX, decode, encode
from tidemark.raft.configuration import Configuration
from tidemark.raft.messages import (
    AppendAccepted,
    AppendEntries,
    InstallSnapshot,
    Message,
    RequestPreVote,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)

LAST_TERM = TERM_MAX
EMPTY = AppendEntries(sender=2, term=0, prev_index=0, prev_term=0, commit_index=0, round=1)


@pytest.mark.parametrize(
    "message",
    [
        EMPTY,
        RequestVote(sender=2, term=0, last_index=1000, last_term=9, forced=True),
        RequestPreVote(sender=2, term=0, last_index=1000, last_term=9),
        VoteResponse(sender=2, term=0, granted=False),
        AppendAccepted(sender=2, term=0, match_index=0, round=0),
        TimeoutNow(sender=2, term=0),
        InstallSnapshot(
            sender=2, term=0, index=9, index_term=1, configuration=Configuration(), offset=0, total=0, data=b"", round=0
        ),
    ],
    ids=lambda message: type(message).__name__,
)
@pytest.mark.parametrize("sender", [2, 9])
def test_a_term_that_elections_cannot_have_reached_is_not_taken_over(message: Message, sender: int) -> None:
    quorum = Quorum(3)
    leader = quorum.elect(1)
    for node_id in (1, 3):
        quorum.step(node_id, replace(message, sender=sender, term=LAST_TERM))
    assert leader.is_leader
    assert leader.term == quorum[3].term == 1
    leader.propose(b"still decided")
    quorum.settle()
    assert quorum.payloads(3) == [b"still decided"]


def test_a_term_that_elections_can_have_reached_is_taken_over() -> None:
    quorum = Quorum(3)
    quorum.elect(1)
    quorum.step(3, replace(EMPTY, term=1_000_000))
    assert quorum[3].term == 1_000_000


def test_an_answer_of_a_node_that_was_never_asked_does_not_end_a_leadership() -> None:
    quorum = Quorum(3)
    leader = quorum.elect(1)
    quorum.step(1, AppendAccepted(sender=9, term=5, match_index=0, round=0))
    assert leader.is_leader
    quorum.step(1, AppendAccepted(sender=2, term=5, match_index=0, round=0))
    assert not leader.is_leader


def test_a_leader_that_was_added_while_a_node_was_away_is_followed() -> None:
    quorum = Quorum(3, spares=1)
    quorum.elect(1)
    quorum.crash(3)
    quorum[1].add_learner(4)
    quorum.settle()
    quorum[1].add_voter(4)
    quorum.settle()
    quorum.restart(3)
    quorum.step(3, replace(EMPTY, sender=4, term=2))
    assert quorum[3].leader_id == 4


def test_a_term_beyond_what_the_journal_can_write_is_no_message() -> None:
    with pytest.raises(MessageCorrupt, match="names term"):
        decode(encode(replace(EMPTY, term=(1 << 64) - 1)))


def test_a_flood_of_dropped_messages_leaves_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    dropped = DroppedMessages(logging.getLogger("test"), clock=lambda: now)
    for _ in range(1000):
        dropped.note("it is not ours")
    assert len(caplog.records) == 1
    now += 60
    dropped.note("it is not ours")
    assert [record.getMessage() for record in caplog.records] == [
        "dropped a message of the quorum: it is not ours",
        "dropped a message of the quorum: it is not ours (999 more since the last line)",
    ]
    assert dropped.count == 1001
