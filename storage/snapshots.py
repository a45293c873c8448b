"""Producer snapshots: the state of every producer as of an offset, in Kafka's .snapshot format.

version int16 = 1 | crc uint32 over what follows (CRC-32C) | count int32 | count entries
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from struct import Struct, error

from tidemark.protocol.records import crc32c
from tidemark.storage import names
from tidemark.storage.deletion import set_aside
from tidemark.storage.errors import CorruptFile
from tidemark.storage.files import Files

_VERSION = 1
_HEAD = Struct(">hIi")
_CRC_END = 6  # the CRC covers everything after version and CRC
# producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, current_txn_first_offset
_ENTRY = Struct(">qhiqiqiq")

SnapshotEntry = tuple[int, int, int, int, int, int, int, int]


def encode(entries: Iterable[SnapshotEntry]) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    data = bytearray(_HEAD.pack(_VERSION, 0, len(packed)) + b"".join(packed))
    data[2:_CRC_END] = crc32c(memoryview(data)[_CRC_END:]).to_bytes(4, "big")
    return bytes(data)


def decode(data: bytes, *, path: str) -> list[SnapshotEntry]:
    try:
        version, crc, count = _HEAD.unpack_from(data)
    except error:
        raise CorruptFile(f"{path} is too short for a producer snapshot") from None
    if version != _VERSION:
        raise CorruptFile(f"{path} is a producer snapshot of unknown version {version}")
    if crc != crc32c(memoryview(data)[_CRC_END:]):
        raise CorruptFile(f"{path}: the producer snapshot's CRC does not match")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptFile(f"{path} holds {len(data)} bytes for {count} producers")
    return list(_ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]))


class SnapshotWrite:
    """A snapshot that is to be written, on any thread."""

    __slots__ = ("_data", "_files", "_path", "is_done", "offset")

    def __init__(self, files: Files, path: str, data: bytes, *, offset: int) -> None:
        self._files = files
        self._path = path
        self._data = data
        self.offset = offset
        self.is_done = False

    def __call__(self) -> None:
        self._files.replace(self._path, self._data, sync=False)
        self.is_done = True


class SnapshotFiles:
    """The .snapshot files of one log, named by the offset that they cover."""

    __slots__ = ("_directory", "_files", "_offsets")

    def __init__(self, files: Files, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)

    def offsets(self) -> list[int]:
        return list(self._offsets)

    def renamed_to(self, directory: str) -> None:
        self._directory = directory

    def path(self, offset: int) -> str:
        return os.path.join(self._directory, names.file_name(offset, names.SNAPSHOT))

    def take(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Writes a snapshot, unless the newest is of this offset already. It is synced with the segment before it;
        until then a power cut may tear it, which its CRC tells."""
        if (write := self.begin(offset, entries)) is not None:
            write()
            self.finish(write)

    def begin(self, offset: int, entries: Iterable[SnapshotEntry]) -> SnapshotWrite | None:
        """`take` in two steps: what is returned may be called on another thread; `finish` follows in any case."""
        if self._offsets and self._offsets[-1] >= offset:
            return None
        return SnapshotWrite(self._files, self.path(offset), encode(entries), offset=offset)

    def finish(self, write: SnapshotWrite) -> None:
        if write.is_done:
            self._offsets.append(write.offset)

    def load_newest(self, *, up_to: int) -> tuple[int, list[SnapshotEntry]] | None:
        """The newest readable snapshot at or before `up_to`; damaged ones are removed on the way."""
        for offset in reversed([offset for offset in self._offsets if offset <= up_to]):
            entries = self._load(offset)
            if entries is not None:
                return offset, entries
        return None

    def remove_torn(self, *, after: int) -> None:
        """What was not synced when the power failed may be torn."""
        for offset in [each for each in self._offsets if each > after]:
            self._load(offset)

    def _load(self, offset: int) -> list[SnapshotEntry] | None:
        """None if it is damaged: then it is removed."""
        try:
            return decode(self._files.read_all(self.path(offset)), path=self.path(offset))
        except (CorruptFile, FileNotFoundError):
            self.remove(offset)
            return None

    def remove(self, offset: int) -> None:
        if offset in self._offsets:
            self._offsets.remove(offset)
            self._files.remove(self.path(offset))

    def rename_for_deletion(self, offset: int) -> list[str]:
        """Takes a snapshot out of the log: see `set_aside`. The newest stays."""
        if offset not in self._offsets[:-1]:
            return []
        renamed = set_aside(self._files, self.path(offset))
        self._offsets.remove(offset)
        return renamed

    def disowned_paths(self, offset: int) -> list[str]:
        """Likewise; its file is still there, by its old name."""
        if offset not in self._offsets[:-1]:
            return []
        self._offsets.remove(offset)
        return [self.path(offset)]

    def remove_after(self, offset: int) -> None:
        for later in [each for each in self._offsets if each > offset]:
            self.remove(later)

    def keep_only(self, bases: Collection[int]) -> None:
        """Keeps the snapshots taken when a segment began, and the newest."""
        for offset in self._offsets[:-1]:
            if offset not in bases:
                self.remove(offset)
