"""The follower's part: wait for a leader, and take over its log, by entries or by a snapshot in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.raft.effects import Effects, ReadReady
from tidemark.raft.entry import Entry, Snapshot
from tidemark.raft.messages import AppendAccepted, AppendEntries, AppendRejected, InstallSnapshot, SnapshotResponse

if TYPE_CHECKING:
    from tidemark.raft.node import Node


class Follower:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._incoming: IncomingSnapshot | None = None
        self.wait_anew()

    def wait_anew(self) -> None:
        node = self._node
        if node.configuration.voters == (node.id,):
            # There is no leader to wait for, unless a leader on its way out has just made this node the only voter.
            self.deadline = max(node.now, node.promised_until)
        else:
            self.deadline = node.now + node.settings.election_timeout * (1 + node.random.random())

    def wait_until(self, deadline: float) -> None:
        self.deadline = min(self.deadline, deadline)

    def tick(self, now: float) -> None:
        if now < self.deadline:
            return
        if self._node.may_campaign and not self._node.is_disk_stalled:
            self._node.become_pre_candidate()
        else:
            self._node.leader_id = None
            self.wait_anew()

    has_reads = False  # only a leader answers them

    def take_reads(self) -> tuple[ReadReady, ...]:
        return ()

    def flush(self) -> None:
        """Nothing is put off."""

    def saved(self, effects: Effects) -> None:
        """The messages that waited for the save say what was saved."""

    # Entries

    def append_entries(self, message: AppendEntries) -> None:
        node = self._node
        known = max(node.commit_index - message.prev_index, 0)  # what is committed is the same in every log
        if not known and not node.log.matches(index=message.prev_index, term=message.prev_term):
            self._reject(message)
            return
        self._append_missing(message.entries[known:])
        match_index = max(message.prev_index + len(message.entries), node.commit_index)
        node.commit_to(min(message.commit_index, match_index))
        self._accept(message, match_index=match_index)

    def _append_missing(self, entries: Sequence[Entry]) -> None:
        """Keep what is already there: a delayed message must not cut off what a later one has added."""
        node = self._node
        for position, entry in enumerate(entries):
            if node.log.matches(index=entry.index, term=entry.term):
                continue
            if entry.index <= node.log.last_index:
                node.truncate_from(entry.index)
            node.append(entries[position:])
            return

    def _accept(self, message: AppendEntries, *, match_index: int) -> None:
        node = self._node
        response = AppendAccepted(sender=node.id, term=node.term, match_index=match_index, round=message.round)
        node.send_after_save(message.sender, response)

    def _reject(self, message: AppendEntries) -> None:
        node = self._node
        conflict_index, conflict_term = node.log.conflict_at(message.prev_index)
        response = AppendRejected(
            sender=node.id,
            term=node.term,
            prev_index=message.prev_index,
            conflict_index=conflict_index,
            conflict_term=conflict_term,
            round=message.round,
        )
        node.send_after_save(message.sender, response)

    # Snapshots

    def install_snapshot(self, message: InstallSnapshot) -> None:
        node = self._node
        if message.total > node.settings.snapshot_bytes_max:
            return
        wanted = message.total
        if message.index > node.commit_index:
            wanted = self._receive(message)
            self._install_if_whole()
        response = SnapshotResponse(
            sender=node.id,
            term=node.term,
            index=message.index,
            offset=wanted,
            installed=message.index <= node.commit_index,
            round=message.round,
        )
        node.send_after_save(message.sender, response)

    def _receive(self, message: InstallSnapshot) -> int:
        """Keep the chunk if it is the next one; returns the offset wanted after it."""
        if self._incoming is None or not self._incoming.is_of(message):
            self._incoming = IncomingSnapshot(message)
        return self._incoming.add(message)

    def _install_if_whole(self) -> None:
        if self._incoming is None or not self._incoming.is_whole:
            return
        snapshot, self._incoming = self._incoming.snapshot(), None
        if self._node.log.matches(index=snapshot.index, term=snapshot.term):
            self._node.commit_to(snapshot.index)  # the entries are all here: no need to load the state
        else:
            self._node.restore(snapshot)


class IncomingSnapshot:
    """Chunks in order. They are kept in memory: a node that restarts begins again."""

    def __init__(self, first: InstallSnapshot) -> None:
        self._first = first
        self._data = bytearray()

    def is_of(self, message: InstallSnapshot) -> bool:
        first = self._first
        return (first.index, first.index_term, first.total) == (message.index, message.index_term, message.total)

    def add(self, message: InstallSnapshot) -> int:
        if message.offset == len(self._data) and len(self._data) + len(message.data) <= message.total:
            self._data += message.data
        return len(self._data)

    @property
    def is_whole(self) -> bool:
        return len(self._data) == self._first.total

    def snapshot(self) -> Snapshot:
        first = self._first
        return Snapshot(
            index=first.index, term=first.index_term, configuration=first.configuration, data=bytes(self._data)
        )
