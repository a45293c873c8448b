"""A node's log in memory: the entries after a base, of which a prefix is on disk and a suffix is not yet."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.raft.entry import Entry


class Log:
    """Entries `first_index … last_index`. The base before them, (base_index, base_term), is known by term only."""

    def __init__(self, entries: Sequence[Entry] = (), *, base_index: int = 0, base_term: int = 0) -> None:
        self.base_index = base_index
        self.base_term = base_term
        self._entries = list(entries)
        self.last_index, self.last_term = base_index, base_term
        self._renew_last()
        self.persisted_index = self.last_index
        self._unsaved_from = self.last_index + 1
        self.size_bytes = sum(len(entry.payload) for entry in self._entries)

    @property
    def first_index(self) -> int:
        return self.base_index + 1

    def term_at(self, index: int) -> int | None:
        """None: the entry is compacted away, or not there yet."""
        position = index - self.base_index - 1
        if position < 0:
            return self.base_term if position == -1 else None
        return self._entries[position].term if position < len(self._entries) else None

    def matches(self, *, index: int, term: int) -> bool:
        return self.term_at(index) == term

    def is_up_to_date(self, *, last_index: int, last_term: int) -> bool:
        """Is a log that ends so at least as new as this one?"""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def between(self, *, first: int, last: int, bytes_max: int, entries_max: int) -> tuple[Entry, ...]:
        """Entries from `first`, as many as the limits allow but at least one if there is one."""
        start = first - self.base_index - 1
        entries = self._entries[start : min(last - self.base_index, start + entries_max)]
        size = 0
        for count, entry in enumerate(entries):
            size += len(entry.payload)
            if size > bytes_max and count:
                return tuple(entries[:count])
        return tuple(entries)

    def payload_bytes(self, *, after: int, up_to: int) -> int:
        return sum(len(entry.payload) for entry in self._entries[after - self.base_index : up_to - self.base_index])

    def append(self, entries: Sequence[Entry]) -> None:
        assert entries[0].index == self.last_index + 1, "a log has no gaps"
        self._entries += entries
        self.size_bytes += sum(len(entry.payload) for entry in entries)
        self.last_index, self.last_term = entries[-1].index, entries[-1].term

    def truncate_from(self, index: int) -> None:
        position = index - self.base_index - 1
        assert position >= 0, "what is compacted is committed, and never truncated"
        self.size_bytes -= sum(len(entry.payload) for entry in self._entries[position:])
        del self._entries[position:]
        self._renew_last()
        self.persisted_index = min(self.persisted_index, self.last_index)
        self._unsaved_from = min(self._unsaved_from, index)

    def compact(self, *, up_to: int, kept: int) -> None:
        """A snapshot covers the entries up to `up_to`: forget them, but for the last `kept`."""
        self._unsaved_from = max(self._unsaved_from, up_to + 1)
        base = max(up_to - kept, self.base_index)
        term = self.term_at(base)
        assert term is not None
        gone = base - self.base_index
        self.size_bytes -= sum(len(entry.payload) for entry in self._entries[:gone])
        del self._entries[:gone]
        self.base_index, self.base_term = base, term

    def restart_after(self, *, index: int, term: int) -> None:
        """A snapshot from the leader takes the place of everything."""
        self._entries.clear()
        self.size_bytes = 0
        self.base_index, self.base_term = index, term
        self._renew_last()
        self.persisted_index = 0
        self._unsaved_from = index + 1

    @property
    def has_unsaved(self) -> bool:
        return self._unsaved_from <= self.last_index

    def take_unsaved(self) -> tuple[Entry, ...]:
        if self._unsaved_from > self.last_index:
            return ()
        entries = tuple(self._entries[self._unsaved_from - self.base_index - 1 :])
        self._unsaved_from = self.last_index + 1
        return entries

    def saved_up_to(self, *, index: int, term: int) -> None:
        """The disk holds this entry and all before it, unless the log was rewritten meanwhile."""
        if index > self.persisted_index and self.matches(index=index, term=term):
            self.persisted_index = index

    def conflict_at(self, prev_index: int) -> tuple[int, int]:
        """Why no entry can follow `prev_index`: (first index of the term found there, that term) or (end + 1, 0)."""
        term = self.term_at(prev_index)
        if term is None:
            return self.last_index + 1, 0
        index = prev_index
        while index > self.first_index and self.term_at(index - 1) == term:
            index -= 1
        return index, term

    def last_index_of_term(self, term: int, *, before: int) -> int | None:
        """The last entry of `term` at or before an index, if the log still has one."""
        for index in range(min(before, self.last_index), self.base_index, -1):
            found = self._entries[index - self.base_index - 1].term
            if found <= term:
                return index if found == term else None
        return None

    def _renew_last(self) -> None:
        if self._entries:
            self.last_index, self.last_term = self._entries[-1].index, self._entries[-1].term
        else:
            self.last_index, self.last_term = self.base_index, self.base_term
