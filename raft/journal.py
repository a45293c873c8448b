"""The durable log of entries under the consensus: append, sync, snapshot, replay.

A directory holds at most one `snapshot` (the state up to an index) and one `journal` (the entries after it). An entry
is framed by its length and a CRC; a torn tail, which only an unsynced append can leave, is cut off on opening. Damage
anywhere else is refused: metadata that cannot be read must not be guessed.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ENTRY_BYTES_MAX: Final = 64 << 20

_FRAME = struct.Struct(">IIQQ")  # payload length, CRC of what follows it, term, index
_AFTER_CRC: Final = 8
_SNAPSHOT = struct.Struct(">8sIQQ")  # magic, CRC of the rest, term, index
_MAGIC: Final = b"TIDESNP1"


class JournalCorrupt(Exception):
    """The journal or its snapshot holds bytes that were not written by us, or were changed since."""


@dataclass(frozen=True, slots=True)
class Entry:
    term: int
    index: int
    payload: bytes


class Journal:
    """One node's entries on disk. Not thread-safe: one caller at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.snapshot_index, self.snapshot_term, self.snapshot = self._load_snapshot()
        self._path = directory / "journal"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.last_index, self.last_term = self.snapshot_index, self.snapshot_term
        self._entries: list[Entry] | None = self._recover()
        self._size = os.fstat(self._fd).st_size

    def replay(self) -> Iterator[Entry]:
        """The entries after the snapshot, once: they are let go as they are read."""
        entries, self._entries = self._entries or [], None
        yield from entries

    def append(self, payloads: Sequence[bytes], *, term: int) -> int:
        """Write the entries and sync them; returns the index of the last one."""
        frames = []
        index = self.last_index
        for payload in payloads:
            if len(payload) > ENTRY_BYTES_MAX:
                raise ValueError(f"an entry of {len(payload)} bytes exceeds {ENTRY_BYTES_MAX}")
            index += 1
            frames.append(_frame(Entry(term, index, payload)))
        data = b"".join(frames)
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(f"wrote {written} of {len(data)} bytes to {self._path}")
            os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)  # nothing of a failed append may be replayed later
            raise
        self._size += len(data)
        self.last_index, self.last_term = index, term
        return index

    def save_snapshot(self, state: bytes) -> None:
        """Replace everything up to now by `state`: the entries before it are no longer needed."""
        body = struct.pack(">QQ", self.last_term, self.last_index) + state
        data = _MAGIC + struct.pack(">I", zlib.crc32(body)) + body
        _write_atomically(self.directory / "snapshot", data)
        self.snapshot_index, self.snapshot_term, self.snapshot = self.last_index, self.last_term, state
        os.ftruncate(self._fd, 0)  # after a crash in between, replay skips what the snapshot covers
        os.fdatasync(self._fd)
        self._size = 0

    @property
    def size_bytes(self) -> int:
        return self._size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _load_snapshot(self) -> tuple[int, int, bytes | None]:
        path = self.directory / "snapshot"
        if not path.exists():
            return 0, 0, None
        data = path.read_bytes()
        if len(data) < _SNAPSHOT.size:
            raise JournalCorrupt(f"{path} is too short to be a snapshot")
        magic, crc, term, index = _SNAPSHOT.unpack_from(data)
        if magic != _MAGIC or zlib.crc32(data[12:]) != crc:
            raise JournalCorrupt(f"{path} is damaged: its checksum does not match")
        return index, term, data[_SNAPSHOT.size :]

    def _recover(self) -> list[Entry]:
        data = self._path.read_bytes()
        entries: list[Entry] = []
        position = 0
        while (found := _entry_at(data, position)) is not None:
            entry, position = found
            if entry.index <= self.snapshot_index:
                continue
            if entry.index != self.last_index + 1:
                raise JournalCorrupt(f"{self._path}: entry {entry.index} follows entry {self.last_index}")
            self.last_index, self.last_term = entry.index, entry.term
            entries.append(entry)
        self._cut_torn_tail(data, position)
        return entries

    def _cut_torn_tail(self, data: bytes, position: int) -> None:
        if position == len(data):
            return
        # An unsynced append can leave a short or garbled last frame, never a good entry after a bad one.
        for probe in range(position + 1, len(data) - _FRAME.size + 1):
            _, _, term, index = _FRAME.unpack_from(data, probe)
            plausible = self.last_index < index < self.last_index + len(data) and self.last_term <= term
            if plausible and _entry_at(data, probe) is not None:
                raise JournalCorrupt(f"{self._path} is damaged at byte {position}: entry {index} follows the damage")
        os.ftruncate(self._fd, position)
        os.fdatasync(self._fd)


def _frame(entry: Entry) -> bytes:
    tail = struct.pack(">QQ", entry.term, entry.index) + entry.payload
    return struct.pack(">II", len(entry.payload), zlib.crc32(tail)) + tail


def _entry_at(data: bytes, position: int) -> tuple[Entry, int] | None:
    if position + _FRAME.size > len(data):
        return None
    length, crc, term, index = _FRAME.unpack_from(data, position)
    end = position + _FRAME.size + length
    if length > ENTRY_BYTES_MAX or end > len(data) or zlib.crc32(data[position + _AFTER_CRC : end]) != crc:
        return None
    return Entry(term, index, data[position + _FRAME.size : end]), end


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
