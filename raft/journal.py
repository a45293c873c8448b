"""The durable log of entries under the consensus: append, truncate, sync, snapshot, replay.

A directory holds at most one `snapshot` (the state up to an index) and one `journal` (the entries after it). An entry
is framed by its length and a CRC; a torn tail, which only an unsynced append can leave, is cut off on opening. Damage
anywhere else is refused: metadata that cannot be read must not be guessed. `sync_point.py` tells the two apart.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tidemark.environment import current
from tidemark.raft.entry import Entry, Kind
from tidemark.raft.errors import UnknownVersion
from tidemark.raft.sync_point import SyncPoint

log = logging.getLogger(__name__)

ENTRY_BYTES_MAX: Final = 64 << 20

_FRAME = struct.Struct(">IIQQ")  # payload length, CRC of what follows it, kind and term, index
_VERSION: Final = 0
_VERSION_SHIFT: Final = 60  # the first byte of the term's eight: four bits of format version, four of kind
_KIND_SHIFT: Final = 56
_KIND_MASK: Final = 0xF
_TERM_MASK: Final = (1 << _KIND_SHIFT) - 1
_AFTER_CRC: Final = 8
_SNAPSHOT = struct.Struct(">8sIQQ")  # magic, CRC of the rest, term, index; then, since 2, the configuration's length
_MAGIC: Final = b"TIDESNP2"
_MAGIC_WITHOUT_CONFIGURATION: Final = b"TIDESNP1"


class JournalCorrupt(Exception):
    """The journal or its snapshot holds bytes that were not written by us, or were changed since."""


class Journal:
    """One node's entries on disk. Not thread-safe: one caller at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files = current().files
        self._files.make_directories(str(directory))
        self.snapshot_index = self.snapshot_term = 0
        self.snapshot: bytes | None = None
        self.configuration = b""  # in force at the snapshot
        self._load_snapshot()
        self._path = str(directory / "journal")
        is_new = not self._files.exists(self._path)
        self._fd = self._open()
        self._sync_point = SyncPoint(directory / "journal-synced")
        self.last_index, self.last_term = self.snapshot_index, self.snapshot_term
        self._positions: list[int] = []  # where each entry after the snapshot begins
        self._terms: list[int] = []
        self._entries: list[Entry] | None = self._recover()
        self._size = self._files.open_size(self._fd)
        if is_new:  # after a loss of power both files are there, and the sync point is in its file
            self._files.sync_directory(str(directory))

    def _open(self) -> int:
        return self._files.open_descriptor(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def replay(self) -> Iterator[Entry]:
        """The entries after the snapshot, once: they are let go as they are read."""
        entries, self._entries = self._entries or [], None
        yield from entries

    def append(self, payloads: Sequence[bytes], *, term: int) -> int:
        """Write the payloads as entries and sync them; returns the index of the last one."""
        first = self.last_index + 1
        self.append_entries([Entry(term, index, payload) for index, payload in enumerate(payloads, start=first)])
        return self.last_index

    def append_entries(self, entries: Sequence[Entry]) -> None:
        """Write the entries and sync them. What the journal holds from the first one's index on is replaced."""
        if not entries:
            return
        if entries[0].index <= self.last_index:
            self.truncate_from(entries[0].index)
        positions, frames, end = [], [], self._size
        for index, entry in enumerate(entries, start=self.last_index + 1):
            if entry.index != index or len(entry.payload) > ENTRY_BYTES_MAX:
                raise ValueError(f"entry {entry.index} of {len(entry.payload)} bytes cannot be entry {index}")
            positions.append(end)
            frames.append(_frame(entry))
            end += len(frames[-1])
        self._write(b"".join(frames))
        self._positions += positions
        self._terms += [entry.term for entry in entries]
        self.last_index, self.last_term = entries[-1].index, entries[-1].term
        self._sync_point.advance(self.last_index)

    def _write(self, data: bytes) -> None:
        try:
            self._files.write_all(self._fd, data)
            self._files.fdatasync(self._fd)
        except OSError:
            self._files.truncate(self._fd, self._size)  # nothing of a failed append may be replayed later
            raise
        self._size += len(data)

    def truncate_from(self, index: int) -> None:
        """Cut off this entry and all after it: another leader has written something else there."""
        keep = index - self.snapshot_index - 1
        if keep < 0:
            raise ValueError(f"entry {index} is covered by the snapshot at {self.snapshot_index}")
        if keep >= len(self._positions):
            return
        self._size = self._positions[keep]
        self._sync_point.lower(index - 1)
        self._cut(self._size)
        del self._positions[keep:], self._terms[keep:]
        self.last_index = index - 1
        self.last_term = self._terms[-1] if self._terms else self.snapshot_term

    def save_snapshot(self, state: bytes) -> None:
        """Replace everything up to now by `state`: the entries before it are no longer needed."""
        self.replace_before(state, index=self.last_index, term=self.last_term, configuration=self.configuration)

    def replace_before(
        self, state: bytes, *, index: int, term: int, configuration: bytes, keep_tail: bool = True
    ) -> None:
        """Replace what is up to `index` by `state`. Entries after it stay, if they follow (index, term)."""
        tail = self._tail_after(index, term) if keep_tail else b""
        body = struct.pack(">QQI", term, index, len(configuration)) + configuration + state
        self._files.replace(str(self.directory / "snapshot"), _snapshot_file(body), sync=True)
        # After a crash here, replay skips what the snapshot covers, and what does not follow it. If the disk is
        # full, this object still has what was true before the call, and the call can be repeated.
        if tail:
            self._keep_tail(tail, gone=index - self.snapshot_index)
        else:
            self._sync_point.lower(index)
            self._cut(0)
            self._positions, self._terms = [], []
            self.last_index, self.last_term = index, term
        self.snapshot_index, self.snapshot_term = index, term
        self.snapshot, self.configuration = state, configuration
        self._size = len(tail)

    def _keep_tail(self, tail: bytes, *, gone: int) -> None:
        self._files.replace(self._path, tail, sync=True)
        old, self._fd = self._fd, self._open()  # in this order: if there is no descriptor left, the call is repeated
        self._files.close(old)
        start = self._positions[gone]
        self._positions = [position - start for position in self._positions[gone:]]
        self._terms = self._terms[gone:]

    def _tail_after(self, index: int, term: int) -> bytes:
        count = index - self.snapshot_index
        if not 0 < count < len(self._positions) or self._terms[count - 1] != term:
            return b""
        start = self._positions[count]
        return self._files.pread(self._fd, self._size - start, start)

    @property
    def size_bytes(self) -> int:
        return self._size

    def close(self) -> None:
        self._sync_point.close()
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def _load_snapshot(self) -> None:
        path = str(self.directory / "snapshot")
        if not self._files.exists(path):
            return
        data = self._files.read_all(path)
        if len(data) < _SNAPSHOT.size:
            raise JournalCorrupt(f"{path} is too short to be a snapshot")
        magic, crc, self.snapshot_term, self.snapshot_index = _SNAPSHOT.unpack_from(data)
        if magic[:-1] == _MAGIC[:-1] and magic[-1:].isdigit() and magic > _MAGIC:
            newest = int(_MAGIC[-1:])
            raise JournalCorrupt(str(UnknownVersion(str(path), version=int(magic[-1:]), newest=newest)))
        if magic not in (_MAGIC, _MAGIC_WITHOUT_CONFIGURATION) or zlib.crc32(data[12:]) != crc:
            raise JournalCorrupt(f"{path} is damaged: its checksum does not match")
        start = _SNAPSHOT.size
        if magic == _MAGIC:
            (length,) = struct.unpack_from(">I", data, start)
            start += 4 + length
            self.configuration = data[start - length : start]
        self.snapshot = data[start:]

    def _recover(self) -> list[Entry]:
        entries = self._read_entries()
        if (synced := self._sync_point.index) is not None and self.last_index < synced:
            raise JournalCorrupt(f"{self._path} ends with entry {self.last_index}, but entry {synced} was synced")
        if synced != self.last_index:
            # A process that ended between a write and its sync: from now on these entries count as saved.
            self._files.fdatasync(self._fd)
            self._sync_point.lower(self.last_index)
            self._sync_point.advance(self.last_index)
        return entries

    def _read_entries(self) -> list[Entry]:
        data = self._files.read_all(self._path)
        entries: list[Entry] = []
        position = 0
        while (found := self._entry_at(data, position)) is not None:
            start, (entry, position) = position, found
            if entry.index == self.snapshot_index and entry.term != self.snapshot_term:
                # A crash came between a leader's snapshot and the end of the log that it replaced.
                self._sync_point.lower(self.snapshot_index)
                self._cut(0)
                return []
            if entry.index <= self.snapshot_index:
                continue
            if entry.index != self.last_index + 1:
                raise JournalCorrupt(f"{self._path}: entry {entry.index} follows entry {self.last_index}")
            self.last_index, self.last_term = entry.index, entry.term
            self._positions.append(start)
            self._terms.append(entry.term)
            entries.append(entry)
        self._cut_torn_tail(data, position)
        return entries

    def _cut(self, size: int) -> None:
        self._files.truncate(self._fd, size)
        self._files.fdatasync(self._fd)

    def _cut_torn_tail(self, data: bytes, position: int) -> None:
        if position == len(data):
            return
        synced = self._sync_point.index
        if synced is None:
            self._refuse_damage_before_an_entry(data, position)
        elif self.last_index < synced:
            raise JournalCorrupt(f"{self._path} is damaged at byte {position}: up to entry {synced} it was synced")
        log.warning(
            "%s: the last append was not synced, and is cut off: %d bytes after entry %d",
            self._path,
            len(data) - position,
            self.last_index,
        )
        self._cut(position)

    def _refuse_damage_before_an_entry(self, data: bytes, position: int) -> None:
        """Not the end of an append that was cut short: what was synced once is damaged."""
        for probe in range(position + 1, len(data) - _FRAME.size + 1):
            _, _, word, index = _FRAME.unpack_from(data, probe)
            plausible = self.last_index < index < self.last_index + len(data) and self.last_term <= word & _TERM_MASK
            if plausible and self._entry_at(data, probe) is not None:
                raise JournalCorrupt(f"{self._path} is damaged at byte {position}: entry {index} follows the damage")

    def _entry_at(self, data: bytes, position: int) -> tuple[Entry, int] | None:
        try:
            return _entry_at(data, position)
        except UnknownVersion as error:
            raise JournalCorrupt(f"{self._path}: {error}") from error


def _frame(entry: Entry) -> bytes:
    tail = struct.pack(">QQ", entry.kind << _KIND_SHIFT | entry.term, entry.index) + entry.payload
    return struct.pack(">II", len(entry.payload), zlib.crc32(tail)) + tail


def _entry_at(data: bytes, position: int) -> tuple[Entry, int] | None:
    if position + _FRAME.size > len(data):
        return None
    length, crc, word, index = _FRAME.unpack_from(data, position)
    end = position + _FRAME.size + length
    if length > ENTRY_BYTES_MAX or end > len(data) or zlib.crc32(data[position + _AFTER_CRC : end]) != crc:
        return None
    version, kind = word >> _VERSION_SHIFT, word >> _KIND_SHIFT & _KIND_MASK
    if version > _VERSION or kind > max(Kind):
        raise UnknownVersion(f"entry {index}, of kind {kind},", version=max(version, _VERSION + 1), newest=_VERSION)
    return Entry(word & _TERM_MASK, index, data[position + _FRAME.size : end], Kind(kind)), end


def _snapshot_file(body: bytes) -> bytes:
    return _MAGIC + struct.pack(">I", zlib.crc32(body)) + body
