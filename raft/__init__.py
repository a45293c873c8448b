"""Consensus for the cluster's metadata. Imports nothing of ours."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raft.configuration import Configuration, Member
    from raft.driver import Driver, StateMachine, Storage, Transport
    from raft.effects import Effects, ReadReady
    from raft.entry import Entry, HardState, Kind, Saved, Snapshot
    from raft.errors import (
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
    from raft.journal import Journal, JournalCorrupt
    from raft.node import Leadership, Node
    from raft.progress import Replica
    from raft.recovery import Survivor
    from raft.settings import Settings
    from raft.storage import FileStorage

# Loaded when asked for: a node that needs only the journal starts without the rest.
_HOME = {
    "ChangePending": "raft.errors",
    "Configuration": "raft.configuration",
    "Driver": "raft.driver",
    "Effects": "raft.effects",
    "Entry": "raft.entry",
    "FileStorage": "raft.storage",
    "HardState": "raft.entry",
    "Journal": "raft.journal",
    "JournalCorrupt": "raft.journal",
    "Kind": "raft.entry",
    "Leadership": "raft.node",
    "LeadershipLost": "raft.errors",
    "Member": "raft.configuration",
    "MessageCorrupt": "raft.errors",
    "Node": "raft.node",
    "NotCaughtUp": "raft.errors",
    "NotLeader": "raft.errors",
    "Overloaded": "raft.errors",
    "RaftError": "raft.errors",
    "ReadReady": "raft.effects",
    "Replica": "raft.progress",
    "Saved": "raft.entry",
    "Settings": "raft.settings",
    "Snapshot": "raft.entry",
    "StaleEpoch": "raft.errors",
    "StateMachine": "raft.driver",
    "Storage": "raft.driver",
    "Survivor": "raft.recovery",
    "TransferPending": "raft.errors",
    "Transport": "raft.driver",
    "UnknownMember": "raft.errors",
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
