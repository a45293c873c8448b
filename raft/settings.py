"""Times and limits of one node. Times are in seconds of the node's own clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    heartbeat_interval: float = 0.2
    election_timeout: float = 1.0  # a follower waits between this and twice this; a live leader is not voted out

    # How far a message's term may be ahead: half a year of an election per second while a node was away. A larger one
    # is not taken over, because a term near the end of the range could never be followed by another.
    term_jump_max: int = 1 << 24

    append_bytes_max: int = 1 << 20  # of payload in one AppendEntries; a larger entry travels alone
    append_entries_max: int = 1024
    inflight_max: int = 32  # AppendEntries sent to one peer and not answered
    entry_bytes_max: int = 32 << 20
    uncommitted_bytes_max: int = 64 << 20  # proposals beyond this are refused
    apply_bytes_max: int = 4 << 20  # of committed payload handed out at once
    reads_max: int = 10_000
    snapshot_chunk_bytes: int = 1 << 20
    snapshot_bytes_max: int = 1 << 30
    entries_kept: int = 1024  # behind a snapshot, so that a slightly lagging peer needs no snapshot
    catch_up_entries_max: int = 64  # how far a learner may lag and still become a voter

    # Reads under a lease skip the round trip, and are only as good as the clocks: `clock_drift_max` bounds how much
    # faster or slower than real time any node's clock may run.
    lease_reads: bool = False
    clock_drift_max: float = 0.05

    @property
    def quorum_timeout(self) -> float:
        """How long a leader goes on without a word of a majority: as long as its followers wait for it on average, and
        as KRaft's. Less, and a leader gives up before any follower misses it, when the one voter that it needs stands
        still for a moment; more, and one that is heard but does not hear keeps the others from electing another."""
        return 1.5 * self.election_timeout

    @property
    def save_timeout(self) -> float:
        """How long a disk may take for one save before this node leaves the lead to others: the longest that a follower
        waits for a leader. Less, and a disk that is only slow under load would move the lead from node to node."""
        return 2 * self.election_timeout

    @property
    def lease(self) -> float:
        """How long after a round began its leader may trust it: less than any follower's time-out, at any drift."""
        return self.election_timeout * (1 - self.clock_drift_max) / (1 + self.clock_drift_max)
