"""What must always hold, looked at after every step. The names are those of the Raft paper (figure 3)."""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from typing import TYPE_CHECKING

from tidemark.raft import Configuration, Entry, Kind, Node, Snapshot

if TYPE_CHECKING:
    from raft_simulation.world import Host

STATE = struct.Struct(">QI")  # index, digest


class Violation(AssertionError):
    """Something happened that must never happen."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


def digest_after(digest: int, entry: Entry) -> int:
    return zlib.crc32(entry.payload, digest ^ entry.term * 2654435761 & 0xFFFFFFFF)


class Checker:
    """`ledger` is what the quorum has committed, as first seen; it never changes, it only grows."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.written: dict[tuple[int, int], tuple[int, Kind, bytes]] = {}
        self.ledger: list[Entry] = []
        self.ledger_digests = [0]
        self.ledger_terms: list[int] = []  # the term in which each was committed
        self.configurations: list[tuple[int, Configuration]] = []  # those in the ledger
        self.acknowledged: dict[int, bytes] = {}
        self.reads = 0

    # After every step

    def after_step(self, host: Host, hosts: list[Host]) -> None:
        node = host.node
        assert node is not None
        if node.is_leader and host.led_term != node.term:
            host.led_term = node.term
            self._new_leader(node)
        if node.commit_index != host.seen_commit:
            check(node.commit_index > host.seen_commit, f"monotonic commit: node {node.id} went back")
            self._commit(node, host.seen_commit, hosts)
            host.seen_commit = node.commit_index

    def _new_leader(self, node: Node) -> None:
        other = self.leaders.setdefault(node.term, node.id)
        check(other == node.id, f"election safety: {other} and {node.id} both lead term {node.term}")
        last = bisect_left(self.ledger_terms, node.term)  # the entries committed in older terms
        if last > node.log.base_index:
            term = self.ledger[last - 1].term
            check(
                node.log.term_at(last) == term,
                f"leader completeness: {node.id} leads term {node.term} without entry {last} of term {term}",
            )

    def _commit(self, node: Node, before: int, hosts: list[Host]) -> None:
        log = node.log
        first = max(before, log.base_index) + 1
        if log.base_index > before:
            base = log.base_index
            check(base <= len(self.ledger), f"node {node.id} has a snapshot of what is not committed")
            check(self.ledger[base - 1].term == log.base_term, f"state machine safety: the snapshot at {base}")
        count = node.commit_index - first + 1
        for entry in log.between(first=first, last=node.commit_index, bytes_max=1 << 40, entries_max=count):
            if entry.index <= len(self.ledger):
                check(
                    entry == self.ledger[entry.index - 1],
                    f"state machine safety: node {node.id} commits another entry at {entry.index}",
                )
            else:
                self._extend(entry, node, hosts)
        if node.is_leader and node.commit_index == len(self.ledger):
            # Raft §5.4.2. What follows from breaking it (figure 8) is rare; that it is broken is seen at once.
            check(self.ledger[-1].term <= node.term, "an entry of a later term is committed")
            own = log.term_at(node.commit_index) in (None, node.term)
            check(own, f"commit of an old term: {node.id} commits up to {node.commit_index} in term {node.term}")

    def _extend(self, entry: Entry, node: Node, hosts: list[Host]) -> None:
        check(node.is_leader or node.id not in node.configuration.voters, f"entry {entry.index}: not by a leader")
        self.ledger.append(entry)
        self.ledger_terms.append(node.term)
        if entry.kind is Kind.CONFIGURATION:
            self.configurations.append((entry.index, Configuration.decode(entry.payload)))
        self.ledger_digests.append(digest_after(self.ledger_digests[-1], entry))
        voters = node.configuration.voters
        holders = [h.id for h in hosts if h.id in voters and h.disk.holds(index=entry.index, term=entry.term)]
        check(
            len(holders) >= node.configuration.majority,
            f"durability: entry {entry.index} is committed but only the disks of {holders} hold it, of {voters}",
        )

    # As things happen

    def vote(self, voter: int, term: int, candidate: int) -> None:
        other = self.votes.setdefault((voter, term), candidate)
        check(other == candidate, f"one vote: {voter} voted for {other} and {candidate} in term {term}")

    def write(self, node: Node, entries: tuple[Entry, ...]) -> None:
        """Log matching, by induction: one (index, term) is always one entry, after one and the same entry."""
        prev_term = node.log.term_at(entries[0].index - 1)
        assert prev_term is not None
        for entry in entries:
            seen = (prev_term, entry.kind, entry.payload)
            known = self.written.get((entry.index, entry.term))
            if known is None:
                self.written[entry.index, entry.term] = seen
            else:
                check(known == seen, f"log matching: two entries are ({entry.index}, {entry.term})")
            if entry.kind is Kind.CONFIGURATION:
                self._check_change(node, entry)
            prev_term = entry.term

    def _check_change(self, node: Node, entry: Entry) -> None:
        old, new = node.configuration_before(entry.index), Configuration.decode(entry.payload)
        if not old.members:
            return  # a node that joins does not know who was there before; the others do
        changed = set(old.voters) ^ set(new.voters)
        check(len(changed) <= 1, f"one voter at a time: {sorted(changed)} change at {entry.index}")

    def applied(self, host: Host, entry: Entry) -> None:
        check(entry.index == host.applied_index + 1, f"node {host.id} applies {entry.index} after {host.applied_index}")
        host.applied_index = entry.index
        host.digest = digest_after(host.digest, entry)
        self._check_state(host)

    def restored(self, host: Host, snapshot: Snapshot) -> None:
        host.applied_index, host.digest = STATE.unpack_from(snapshot.data)
        check(host.applied_index == snapshot.index, f"node {host.id} got a snapshot of another index")
        newest = [configuration for index, configuration in self.configurations if index <= snapshot.index]
        if newest and host.node is not None:
            in_force = host.node.configuration_before(snapshot.index + 1)
            check(in_force == newest[-1], f"node {host.id} restored {snapshot.index} with another configuration")
        self._check_state(host)

    def _check_state(self, host: Host) -> None:
        check(
            host.applied_index < len(self.ledger_digests) and self.ledger_digests[host.applied_index] == host.digest,
            f"state machine safety: the state of node {host.id} at {host.applied_index} is not the quorum's",
        )

    def acknowledge(self, entry: Entry) -> None:
        self.acknowledged[entry.index] = entry.payload

    def newest_acknowledged(self) -> int:
        return len(self.ledger)

    def read_answered(self, *, index: int, asked_at: int) -> None:
        self.reads += 1
        check(index >= asked_at, f"stale read: answered at {index}, but {asked_at} was committed when it was asked")

    def at_end(self) -> None:
        for index, payload in self.acknowledged.items():
            check(self.ledger[index - 1].payload == payload, f"entry {index} was acknowledged and is lost")
