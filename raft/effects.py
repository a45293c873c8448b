"""What the world must do for a node: in this order — save, tell the node, send, restore, apply, answer reads."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.raft.entry import Entry, HardState, Snapshot
from tidemark.raft.messages import Message

Addressed = tuple[int, Message]  # to whom, and what


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReady:
    """The read may be answered by a state machine that has applied `index`."""

    token: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """`hard_state`, `snapshot` and `entries` are durable, in that order, before any of `messages` leaves.

    The first of `entries` may be at an index that the disk already holds: what is there from that index on goes.
    """

    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Addressed, ...] = ()
    restore: Snapshot | None = None  # the state machine starts again from this; then come the committed entries
    committed: tuple[Entry, ...] = ()
    reads: tuple[ReadReady, ...] = ()

    @property
    def must_save(self) -> bool:
        return bool(self.entries) or self.hard_state is not None or self.snapshot is not None

    def __bool__(self) -> bool:
        return self.must_save or bool(self.messages or self.committed or self.reads) or self.restore is not None
