"""A node's memory on disk: the journal, and beside it a small file for the term and the vote."""

from __future__ import annotations

from pathlib import Path

from tidemark.environment import current
from tidemark.raft.codec import decode_hard_state, encode_hard_state
from tidemark.raft.configuration import Configuration
from tidemark.raft.effects import Effects
from tidemark.raft.entry import HardState, Saved, Snapshot
from tidemark.raft.errors import MessageCorrupt
from tidemark.raft.journal import Journal, JournalCorrupt


class FileStorage:
    """Not thread-safe: one call at a time. A save that failed because the disk is full, or because no descriptor was
    free, can be repeated; whatever else raises leaves the node no choice but to stop."""

    def __init__(self, directory: Path) -> None:
        self._files = current().files
        self._journal = Journal(directory)
        self._hard_state_path = str(directory / "hard-state")

    def load(self) -> Saved:
        journal = self._journal
        snapshot = None
        if journal.snapshot is not None:
            snapshot = Snapshot(
                index=journal.snapshot_index,
                term=journal.snapshot_term,
                configuration=self._configuration(),
                data=journal.snapshot,
            )
        hard_state = self._load_hard_state()
        if hard_state.term < journal.last_term:
            raise JournalCorrupt(f"term {hard_state.term} was saved after an entry of term {journal.last_term}")
        return Saved(hard_state=hard_state, snapshot=snapshot, entries=tuple(journal.replay()))

    def save(self, effects: Effects) -> None:
        """Returns when all of it would survive a loss of power."""
        if effects.hard_state is not None:
            self._files.replace(self._hard_state_path, encode_hard_state(effects.hard_state), sync=True)
        if effects.snapshot is not None:
            self._save_snapshot(effects.snapshot, is_foreign=effects.restore is not None)
        after = self._journal.snapshot_index
        self._journal.append_entries([entry for entry in effects.entries if entry.index > after])

    def close(self) -> None:
        self._journal.close()

    def _save_snapshot(self, snapshot: Snapshot, *, is_foreign: bool) -> None:
        if snapshot.index == self._journal.snapshot_index:
            return  # this save was begun before, and ended after the snapshot because the disk was full
        self._journal.replace_before(
            snapshot.data,
            index=snapshot.index,
            term=snapshot.term,
            configuration=snapshot.configuration.encode(),
            keep_tail=not is_foreign,
        )

    def _configuration(self) -> Configuration:
        if not self._journal.configuration:
            return Configuration()
        try:
            return Configuration.decode(self._journal.configuration)
        except MessageCorrupt as error:
            raise JournalCorrupt(f"the snapshot's configuration: {error}") from error

    def _load_hard_state(self) -> HardState:
        if not self._files.exists(self._hard_state_path):
            # A journal from before there was a quorum: no other node has voted in its terms.
            return HardState(term=self._journal.last_term)
        try:
            return decode_hard_state(self._files.read_all(self._hard_state_path))
        except MessageCorrupt as error:
            raise JournalCorrupt(f"{self._hard_state_path}: {error}") from error
