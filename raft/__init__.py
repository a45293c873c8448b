"""Consensus for the cluster's metadata. Imports nothing of ours."""

from raft.configuration import Configuration, Member
from raft.effects import Effects, ReadReady
from raft.entry import Entry, HardState, Kind, Saved, Snapshot
from raft.errors import (
    ChangePending,
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
from raft.settings import Settings

__all__ = [
    "ChangePending",
    "Configuration",
    "Effects",
    "Entry",
    "HardState",
    "Journal",
    "JournalCorrupt",
    "Kind",
    "Leadership",
    "Member",
    "MessageCorrupt",
    "Node",
    "NotCaughtUp",
    "NotLeader",
    "Overloaded",
    "RaftError",
    "ReadReady",
    "Saved",
    "Settings",
    "Snapshot",
    "StaleEpoch",
    "TransferPending",
    "UnknownMember",
]
