"""Consensus for the cluster's metadata. Imports nothing of ours."""

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
from raft.settings import Settings
from raft.storage import FileStorage
from raft.tcp import TcpTransport

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
    "TcpTransport",
    "TransferPending",
    "Transport",
    "UnknownMember",
]
