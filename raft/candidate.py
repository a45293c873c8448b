"""Standing for election: first ask whether it could be won (pre-vote), then stand.

Without the first step a node that was cut off would come back with a higher term and topple a leader that served well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.raft.effects import Effects, ReadReady
from tidemark.raft.entry import HardState
from tidemark.raft.messages import RequestPreVote, RequestVote

if TYPE_CHECKING:
    from tidemark.raft.node import Node


class Candidate:
    """Counts the votes of one election, or of the question before it."""

    def __init__(self, node: Node, *, is_pre_vote: bool) -> None:
        self._node = node
        self.is_pre_vote = is_pre_vote
        self.votes: dict[int, bool] = {}
        self.deadline = self._give_up_at()

    def _give_up_at(self) -> float:
        settings, chance = self._node.settings, self._node.random.random()
        if self.is_pre_vote:  # asking again costs nothing, and soon others will have missed the leader, too
            return self._node.now + settings.heartbeat_interval * (1 + chance)
        return self._node.now + settings.election_timeout * (1 + chance) / 2

    def ask(self, *, forced: bool = False) -> None:
        node = self._node
        last_index, last_term = node.log.last_index, node.log.last_term
        for voter in node.configuration.voters:
            if voter == node.id:
                continue
            if self.is_pre_vote:
                node.send_after_save(
                    voter,
                    RequestPreVote(sender=node.id, term=node.term, last_index=last_index, last_term=last_term),
                )
            else:
                node.send_after_save(
                    voter,
                    RequestVote(
                        sender=node.id, term=node.term, last_index=last_index, last_term=last_term, forced=forced
                    ),
                )

    def tick(self, now: float) -> None:
        if now >= self.deadline:
            self._node.become_pre_candidate()

    has_reads = False  # only a leader answers them

    def take_reads(self) -> tuple[ReadReady, ...]:
        return ()

    def flush(self) -> None:
        """Nothing is put off."""

    def saved(self, effects: Effects) -> None:
        """Its own vote counts like any other: once it is on disk."""
        node = self._node
        if not self.is_pre_vote and effects.hard_state == HardState(term=node.term, vote=node.id):
            self.count(node.id, granted=True)

    def count(self, voter: int, *, granted: bool) -> None:
        configuration = self._node.configuration
        if voter not in configuration.voters:
            return
        self.votes.setdefault(voter, granted)
        if sum(self.votes.values()) < configuration.majority:
            return
        if self.is_pre_vote and self._node.is_disk_stalled:
            self._node.become_follower(self._node.term, leader_id=None)
        elif self.is_pre_vote:
            self._node.become_candidate()
        else:
            self._node.become_leader()
