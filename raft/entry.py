"""What a node keeps: entries of the log, its hard state, and the snapshot that stands for the entries before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from tidemark.raft.configuration import Configuration


class Kind(IntEnum):
    """What an entry is for: the state machine, nothing (it only opens a term), or the quorum itself."""

    DATA = 0
    NO_OP = 1
    CONFIGURATION = 2


@dataclass(frozen=True, slots=True)
class Entry:
    term: int
    index: int
    payload: bytes
    kind: Kind = Kind.DATA


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """What a node must never forget: the newest term it has seen, and whom it voted for in it."""

    term: int = 0
    vote: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state machine after `index`, and the configuration in force there."""

    index: int
    term: int
    configuration: Configuration
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """All that a storage gives back when a node starts."""

    hard_state: HardState = field(default_factory=HardState)
    snapshot: Snapshot | None = None
    entries: tuple[Entry, ...] = ()
