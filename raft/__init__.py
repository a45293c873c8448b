"""Raft consensus for the cluster's metadata. Imports nothing of ours.

A `Node` is one member of the quorum as a value. It has no clock, no socket and no file: it is given messages and the
time, and hands out `Effects`, which its owner must carry out in this order:

1. save `hard_state`, `snapshot` and `entries`, and sync them; then call `node.saved(effects)`;
2. send `messages`: each of them may speak of what was just saved, so none may leave earlier;
3. give `restore` and `committed` to the state machine, and answer `reads` once it has applied their index.

`node.take_urgent()` returns messages that depend on nothing unsaved; they may leave at any time. `Driver` is the owner
in production (asyncio, files, sockets), and tests/raft/raft_simulation is another (one seed, simulated disks, network
and clocks).

A node is in one of four states. `Node.become_*` are the only ways from one to another, and assert what they assume:

    follower       -> pre-candidate   no leader was heard from for an election time-out
    pre-candidate  -> candidate       a majority would vote for this node: it starts a new term and votes for itself
    candidate      -> leader          a majority voted for it in this term, itself included
    any            -> follower        a newer term was seen, a leader of this term was heard from, or a leader lost
                                      contact with its majority

What never happens, in any history: a term goes back; a node votes for two candidates in one term; the commit index goes
back or beyond the log; a committed entry is replaced. These are asserted where the state changes, so that a mistake
stops one node instead of misleading the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.raft.configuration import NO_DIRECTORY, Configuration, Member
    from tidemark.raft.driver import Driver, StateMachine, Storage, Transport
    from tidemark.raft.dropped import DroppedMessages
    from tidemark.raft.effects import Effects, ReadReady
    from tidemark.raft.entry import Entry, HardState, Kind, Saved, Snapshot
    from tidemark.raft.errors import (
        ChangePending,
        DirectoryChanged,
        LeadershipLost,
        MessageCorrupt,
        NotCaughtUp,
        NotLeader,
        Overloaded,
        RaftError,
        StaleEpoch,
        TransferPending,
        UnknownMember,
        UnknownVersion,
    )
    from tidemark.raft.journal import Journal, JournalCorrupt
    from tidemark.raft.node import Leadership, Node
    from tidemark.raft.progress import Replica
    from tidemark.raft.recovery import Survivor
    from tidemark.raft.settings import RaftSettings
    from tidemark.raft.storage import FileStorage

# Loaded when asked for: a node that needs only the journal starts without the rest.
_HOME = {
    "ChangePending": "tidemark.raft.errors",
    "Configuration": "tidemark.raft.configuration",
    "DirectoryChanged": "tidemark.raft.errors",
    "Driver": "tidemark.raft.driver",
    "DroppedMessages": "tidemark.raft.dropped",
    "Effects": "tidemark.raft.effects",
    "Entry": "tidemark.raft.entry",
    "FileStorage": "tidemark.raft.storage",
    "HardState": "tidemark.raft.entry",
    "Journal": "tidemark.raft.journal",
    "JournalCorrupt": "tidemark.raft.journal",
    "Kind": "tidemark.raft.entry",
    "Leadership": "tidemark.raft.node",
    "LeadershipLost": "tidemark.raft.errors",
    "Member": "tidemark.raft.configuration",
    "MessageCorrupt": "tidemark.raft.errors",
    "NO_DIRECTORY": "tidemark.raft.configuration",
    "Node": "tidemark.raft.node",
    "NotCaughtUp": "tidemark.raft.errors",
    "NotLeader": "tidemark.raft.errors",
    "Overloaded": "tidemark.raft.errors",
    "RaftError": "tidemark.raft.errors",
    "RaftSettings": "tidemark.raft.settings",
    "ReadReady": "tidemark.raft.effects",
    "Replica": "tidemark.raft.progress",
    "Saved": "tidemark.raft.entry",
    "Snapshot": "tidemark.raft.entry",
    "StaleEpoch": "tidemark.raft.errors",
    "StateMachine": "tidemark.raft.driver",
    "Storage": "tidemark.raft.driver",
    "Survivor": "tidemark.raft.recovery",
    "TransferPending": "tidemark.raft.errors",
    "Transport": "tidemark.raft.driver",
    "UnknownMember": "tidemark.raft.errors",
    "UnknownVersion": "tidemark.raft.errors",
}

__all__ = [
    "NO_DIRECTORY",
    "ChangePending",
    "Configuration",
    "DirectoryChanged",
    "Driver",
    "DroppedMessages",
    "Effects",
    "Entry",
    "FileStorage",
    "HardState",
    "Journal",
    "JournalCorrupt",
    "Kind",
    "Leadership",
    "LeadershipLost",
    "Member",
    "MessageCorrupt",
    "Node",
    "NotCaughtUp",
    "NotLeader",
    "Overloaded",
    "RaftError",
    "RaftSettings",
    "ReadReady",
    "Replica",
    "Saved",
    "Snapshot",
    "StaleEpoch",
    "StateMachine",
    "Storage",
    "Survivor",
    "TransferPending",
    "Transport",
    "UnknownMember",
    "UnknownVersion",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
