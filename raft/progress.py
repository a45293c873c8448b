"""What a leader knows of one peer's log, and how much it may send to it now."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto

from tidemark.raft.configuration import Member
from tidemark.raft.entry import Snapshot


class State(Enum):
    PROBE = auto()  # where the logs part is not known: one message at a time
    REPLICATE = auto()  # known: send ahead without waiting
    SNAPSHOT = auto()  # the entries it needs are gone: chunk after chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What a leader can say of a member: how much of the log is on its disk, and when it was last heard from."""

    member: Member
    match_index: int
    heard_at: float


class Progress:
    __slots__ = (
        "_pending_at_heartbeat",
        "commit_sent",
        "contact",
        "inflight",
        "match_index",
        "next_index",
        "offset",
        "round_acked",
        "snapshot",
        "state",
        "waiting",
        "wanted_offset",
    )

    def __init__(self, *, next_index: int, now: float) -> None:
        self.state = State.PROBE
        self.match_index = 0
        self.next_index = next_index
        self.inflight: deque[int] = deque()  # last index of each message sent and not answered
        self.waiting = False  # a probe or a chunk is on its way
        self.snapshot: Snapshot | None = None
        self.offset = 0  # of the chunk to send next
        self.wanted_offset = 0  # as the peer last said; it goes back if the peer has restarted
        self.contact = now  # when it was last heard from
        self.round_acked = 0
        self.commit_sent = 0
        self._pending_at_heartbeat = (False, 0, 0, 0)

    def may_send(self, inflight_max: int) -> bool:
        if self.state is State.REPLICATE:
            return len(self.inflight) < inflight_max
        return not self.waiting

    def sent_up_to(self, index: int) -> None:
        if self.state is State.REPLICATE:
            self.inflight.append(index)
            self.next_index = index + 1
        else:
            self.waiting = True

    def accepted(self, match_index: int) -> None:
        if match_index > self.match_index:
            self.match_index = match_index
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.inflight and self.inflight[0] <= match_index:
            self.inflight.popleft()

    def become_replicate(self) -> None:
        self.state, self.waiting, self.snapshot = State.REPLICATE, False, None
        self.next_index = self.match_index + 1
        self.inflight.clear()

    def become_probe(self, next_index: int) -> None:
        self.state, self.waiting, self.snapshot = State.PROBE, False, None
        self.next_index = max(next_index, self.match_index + 1)
        self.inflight.clear()

    def become_snapshot(self, snapshot: Snapshot) -> None:
        self.state, self.waiting, self.snapshot = State.SNAPSHOT, False, snapshot
        self.offset = self.wanted_offset = 0
        self.inflight.clear()

    def heartbeat(self) -> None:
        """Once per interval: what was on its way at the last one and has brought no answer is lost, and sent again."""
        pending = (self.waiting, self.inflight[0] if self.inflight else 0, self.match_index, self.offset)
        is_lost = pending == self._pending_at_heartbeat
        self._pending_at_heartbeat = pending
        if not is_lost:
            return
        if self.state is State.REPLICATE and self.inflight:
            self.become_probe(self.match_index + 1)
        self.waiting, self.offset = False, self.wanted_offset
