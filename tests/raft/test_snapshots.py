"""A snapshot takes the place of old entries: on the node that makes it, and on one that lacks them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_simulation.scenario import Quorum

from tidemark.raft import RaftSettings
from tidemark.raft.messages import InstallSnapshot

SMALL = RaftSettings(heartbeat_interval=1.0, election_timeout=10.0, snapshot_chunk_bytes=10, entries_kept=0)


def quorum_with_a_snapshot(settings: RaftSettings = SMALL) -> Quorum:
    """Node 3 has missed ten entries, which the others have put into a snapshot."""
    quorum = Quorum(3, settings=settings)
    leader = quorum.elect(1)
    quorum.isolate(3)
    for number in range(10):
        leader.propose(b"%d" % number)
    quorum.settle()
    leader.compact(index=leader.applied_index, data=b"the state after ten entries, in chunks")
    quorum.settle()
    return quorum


def test_a_node_that_lacks_compacted_entries_gets_the_snapshot_in_chunks() -> None:
    quorum = quorum_with_a_snapshot()
    quorum.heal()
    for _ in range(3):
        quorum.beat()
    quorum[1].propose(b"next")
    quorum.settle()
    assert len(quorum.of_type(InstallSnapshot)) >= 4
    assert quorum[3].snapshot == quorum[1].snapshot
    assert quorum.payloads(3) == [b"next"]


def test_a_lost_chunk_is_sent_again() -> None:
    quorum = quorum_with_a_snapshot()
    quorum.heal()
    lost: list[int] = []

    def lose_once(message: object) -> bool:
        if isinstance(message, InstallSnapshot) and message.offset not in lost:
            lost.append(message.offset)
            return True
        return False

    quorum.refused = lose_once
    for _ in range(20):
        quorum.beat()
    assert lost == [0, 10, 20, 30]
    assert quorum[3].commit_index == quorum[1].commit_index


def test_a_node_that_restarts_between_chunks_begins_again() -> None:
    quorum = quorum_with_a_snapshot()
    quorum.heal()
    quorum.refused = lambda message: isinstance(message, InstallSnapshot) and message.offset >= 20
    for _ in range(4):
        quorum.beat()
    quorum.restart(3)
    quorum.refused = lambda message: False
    for _ in range(6):
        quorum.beat()
    assert quorum[3].commit_index == quorum[1].commit_index


def test_a_snapshot_over_the_limit_is_not_taken() -> None:
    quorum = quorum_with_a_snapshot(replace(SMALL, snapshot_bytes_max=20))
    quorum.heal()
    for _ in range(6):
        quorum.beat()
    assert quorum[3].commit_index <= 1


def test_a_slightly_lagging_node_needs_no_snapshot() -> None:
    quorum = quorum_with_a_snapshot(replace(SMALL, entries_kept=100))
    quorum.heal()
    for _ in range(3):
        quorum.beat()
    assert quorum.of_type(InstallSnapshot) == []
    assert len(quorum.payloads(3)) == 10


def test_a_node_restarts_from_its_snapshot_and_the_entries_after_it() -> None:
    quorum = quorum_with_a_snapshot()
    quorum[1].propose(b"after")
    quorum.settle()
    last = quorum[1].log.last_index
    quorum.restart(1)
    node = quorum[1]
    assert node.commit_index == last - 1
    assert node.log.last_index == last
    effects = node.take()
    assert effects.restore is not None
    assert effects.restore.data.startswith(b"the state")


def test_a_snapshot_carries_the_configuration() -> None:
    quorum = Quorum(3, spares=1, settings=SMALL)
    leader = quorum.elect(1)
    quorum.isolate(4)
    leader.add_learner(4)
    quorum.settle()
    leader.compact(index=leader.applied_index, data=b"state")
    quorum.heal()
    for _ in range(3):
        quorum.beat()
    assert quorum[4].configuration == leader.configuration
    assert quorum[4].snapshot == leader.snapshot


def test_a_snapshot_of_what_is_not_applied_is_refused() -> None:
    quorum = quorum_with_a_snapshot()
    leader = quorum[1]
    for index in (0, leader.applied_index, leader.applied_index + 1):
        with pytest.raises(ValueError, match="no snapshot"):
            leader.compact(index=index, data=b"")
