"""Consensus for the cluster's metadata. Imports nothing of ours."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.raft.configuration import Configuration, Member
    from tidemark.raft.driver import Driver, StateMachine, Storage, Transport
    from tidemark.raft.effects import Effects, ReadReady
    from tidemark.raft.entry import Entry, HardState, Kind, Saved, Snapshot
    from tidemark.raft.errors import (
        ChangePending,
        LeadershipLost,
        MessageCorrupt,
        NotCaughtUp,
        NotLeader,
        Overloaded,
        RaftError,
        StaleEpoch,
        TransferPending,
        UnknownMember,
    )
    from tidemark.raft.journal import Journal, JournalCorrupt
    from tidemark.raft.node import Leadership, Node
    from tidemark.raft.progress import Replica
    from tidemark.raft.recovery import Survivor
    from tidemark.raft.settings import Settings
    from tidemark.raft.storage import FileStorage

# Loaded when asked for: a node that needs only the journal starts without the rest.
_HOME = {
    "ChangePending": "tidemark.raft.errors",
    "Configuration": "tidemark.raft.configuration",
    "Driver": "tidemark.raft.driver",
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
    "Node": "tidemark.raft.node",
    "NotCaughtUp": "tidemark.raft.errors",
    "NotLeader": "tidemark.raft.errors",
    "Overloaded": "tidemark.raft.errors",
    "RaftError": "tidemark.raft.errors",
    "ReadReady": "tidemark.raft.effects",
    "Replica": "tidemark.raft.progress",
    "Saved": "tidemark.raft.entry",
    "Settings": "tidemark.raft.settings",
    "Snapshot": "tidemark.raft.entry",
    "StaleEpoch": "tidemark.raft.errors",
    "StateMachine": "tidemark.raft.driver",
    "Storage": "tidemark.raft.driver",
    "Survivor": "tidemark.raft.recovery",
    "TransferPending": "tidemark.raft.errors",
    "Transport": "tidemark.raft.driver",
    "UnknownMember": "tidemark.raft.errors",
}

__all__ = [
    "ChangePending",
    "Configuration",
    "Driver",
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
    "ReadReady",
    "Replica",
    "Saved",
    "Settings",
    "Snapshot",
    "StaleEpoch",
    "StateMachine",
    "Storage",
    "Survivor",
    "TransferPending",
    "Transport",
    "UnknownMember",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
