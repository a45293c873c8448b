"""What nodes say to each other. `term` is always the sender's own term at the time of sending."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.raft.configuration import Configuration
from tidemark.raft.entry import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPreVote:
    """Would you vote for me, if I stood in the term after mine? Nothing changes by asking."""

    sender: int
    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteResponse:
    sender: int
    term: int
    granted: bool
    asked_term: int  # the term of the question, so that an answer to an older one is not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestVote:
    sender: int
    term: int
    last_index: int
    last_term: int
    forced: bool  # the leader itself asked for this election, so hearing from it is no reason to refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    sender: int
    term: int
    granted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEntries:
    """Entries after (prev_index, prev_term), or none: a heartbeat. `round` is echoed, and confirms the leadership."""

    sender: int
    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    round: int
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendAccepted:
    sender: int
    term: int
    match_index: int  # the sender's log is the leader's up to here, and on its disk
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRejected:
    """The log has no (prev_index, prev_term). The conflict lets the leader back up by a whole term at once."""

    sender: int
    term: int
    prev_index: int
    conflict_index: int
    conflict_term: int  # 0: the log ends before prev_index
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshot:
    """One chunk of a snapshot."""

    sender: int
    term: int
    index: int
    index_term: int
    configuration: Configuration
    offset: int
    total: int
    data: bytes
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResponse:
    sender: int
    term: int
    index: int
    offset: int  # the next byte wanted; the snapshot's size once it is installed
    installed: bool
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow:
    """The leader hands over: stand for election at once."""

    sender: int
    term: int


Message = (
    RequestPreVote
    | PreVoteResponse
    | RequestVote
    | VoteResponse
    | AppendEntries
    | AppendAccepted
    | AppendRejected
    | InstallSnapshot
    | SnapshotResponse
    | TimeoutNow
)
