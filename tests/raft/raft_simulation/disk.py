"""A disk that keeps what was synced, and forgets the rest in a crash; a save that a crash cuts off is kept in part."""

from __future__ import annotations

from random import Random

from tidemark.raft import Effects, Entry, HardState, Saved, Snapshot


class Disk:
    def __init__(self) -> None:
        self.hard_state = HardState()
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []

    def load(self) -> Saved:
        return Saved(hard_state=self.hard_state, snapshot=self.snapshot, entries=tuple(self.entries))

    def save(self, effects: Effects) -> None:
        if effects.hard_state is not None:
            self.save_hard_state(effects.hard_state)
        if effects.snapshot is not None:
            self._save_snapshot(effects.snapshot, is_foreign=effects.restore is not None)
        if effects.entries:
            self._append(effects.entries)

    def save_in_part(self, effects: Effects, random: Random) -> None:
        """The order of the parts is kept: a crash cuts the sequence at any point."""
        if effects.hard_state is not None and random.random() < 0.7:
            self.save_hard_state(effects.hard_state)
        elif effects.hard_state is not None:
            return
        if effects.snapshot is not None and random.random() < 0.7:
            self._save_snapshot(effects.snapshot, is_foreign=effects.restore is not None)
        elif effects.snapshot is not None:
            return
        if effects.entries:
            self._append(effects.entries[: random.randint(0, len(effects.entries))])

    def save_hard_state(self, state: HardState) -> None:
        self.hard_state = state

    def holds(self, *, index: int, term: int) -> bool:
        base = 0 if self.snapshot is None else self.snapshot.index
        if index <= base:
            return True  # a snapshot is of committed entries only
        return index - base <= len(self.entries) and self.entries[index - base - 1].term == term

    def _save_snapshot(self, snapshot: Snapshot, *, is_foreign: bool) -> None:
        keeps_tail = not is_foreign and self.holds(index=snapshot.index, term=snapshot.term)
        self.entries = [entry for entry in self.entries if entry.index > snapshot.index] if keeps_tail else []
        self.snapshot = snapshot

    def _append(self, entries: tuple[Entry, ...]) -> None:
        base = 0 if self.snapshot is None else self.snapshot.index
        entries = tuple(entry for entry in entries if entry.index > base)
        if entries:
            position = entries[0].index - base - 1
            assert position <= len(self.entries), "a gap on disk"
            self.entries[position:] = entries
