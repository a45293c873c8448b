"""When a majority of the voters is gone for good: what one survivor has becomes the beginning of a new quorum.

This breaks the promise of consensus, on purpose: what was decided and this node did not hear of is lost, and the others
must never decide anything again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tidemark.raft.configuration import Configuration
from tidemark.raft.effects import Effects
from tidemark.raft.entry import Entry, HardState, Kind, Saved
from tidemark.raft.errors import UnknownMember

TERMS_AHEAD: Final = 1000  # of all that the others can have reached without us: a node that hears both follows us


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """What a node's storage says. Of several, the one with the highest (term, index) knows most."""

    saved: Saved

    @property
    def last(self) -> tuple[int, int]:
        """Term and index of the newest entry."""
        if self.saved.entries:
            entry = self.saved.entries[-1]
            return entry.term, entry.index
        snapshot = self.saved.snapshot
        return (0, 0) if snapshot is None else (snapshot.term, snapshot.index)

    @property
    def configuration(self) -> Configuration:
        for entry in reversed(self.saved.entries):
            if entry.kind is Kind.CONFIGURATION:
                return Configuration.decode(entry.payload)
        return Configuration() if self.saved.snapshot is None else self.saved.snapshot.configuration

    def alone(self, node_id: int, payload: bytes = b"") -> Effects:
        """What to save, so that this node alone decides from its next start on. The others may follow, without votes,
        until they are given some. `payload`, if there is any, is the first that it decides."""
        configuration = self.configuration
        if configuration.member(node_id) is None:
            raise UnknownMember(f"node {node_id} is no member of the quorum")
        members = tuple(replace(each, is_voter=each.node_id == node_id) for each in configuration.members)
        term = max(self.saved.hard_state.term, self.last[0]) + TERMS_AHEAD
        first = self.last[1] + 1
        entries = [Entry(term, first, Configuration(members).encode(), Kind.CONFIGURATION)]
        if payload:
            entries.append(Entry(term, first + 1, payload))
        return Effects(hard_state=HardState(term=term), entries=tuple(entries))
