"""Consensus for the cluster's metadata. Imports nothing of ours."""

from raft.journal import Entry, Journal, JournalCorrupt

__all__ = ["Entry", "Journal", "JournalCorrupt"]
