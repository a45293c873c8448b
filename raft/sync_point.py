"""Up to which entry the journal is known to be on the disk: a small file beside it.

After a loss of power the end of a journal may be damaged in any way, because the pages of an append that was not synced
reach the disk in any order. Damage before that end is another matter: it hit what was acknowledged. The sync point
tells them apart. It is written after each sync, but not synced itself, so after a loss of power it may lag behind, by a
minute perhaps; it is never ahead, because it is lowered, durably, before entries are cut off. What lags costs nothing:
entries that are whole are kept, whatever it says. It decides only about what is damaged, and then the damage must have
hit what was synced within that minute, too, to be taken for the end of an append.

It is never missing after a loss of power either, or the node would have to refuse an append that was cut short: it is
synced once when it is made, and later written in place, all of it within one sector.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import Final

from tidemark.environment import current

_BODY = struct.Struct(">8sQ")  # magic, index
_CRC = struct.Struct(">I")
_MAGIC: Final = b"TIDESYN1"


class SyncPoint:
    """`index` is None when it is not known: the journal is from before there was a sync point."""

    def __init__(self, path: Path) -> None:
        self._files = current().files
        self._fd = self._files.open_descriptor(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        self.index = self._load()

    def _load(self) -> int | None:
        data = self._files.pread(self._fd, _BODY.size + _CRC.size, 0)
        if len(data) != _BODY.size + _CRC.size or _CRC.unpack_from(data, _BODY.size)[0] != zlib.crc32(data[:-4]):
            return None
        magic, index = _BODY.unpack_from(data)
        return index if magic == _MAGIC else None

    def advance(self, index: int) -> None:
        """The journal is synced up to `index`. This may be lost, so failing to write it is no reason to stop."""
        with contextlib.suppress(OSError):
            self._write(index)
            self.index = index

    def lower(self, index: int) -> None:
        """Entries after `index` are about to be cut off. Durable on return."""
        if self.index is None or self.index > index:
            self._write(index)
            self._files.fdatasync(self._fd)
            self.index = index  # not before: if the sync fails, and the call is repeated, it must sync

    def _write(self, index: int) -> None:
        body = _BODY.pack(_MAGIC, index)
        self._files.pwrite(self._fd, body + _CRC.pack(zlib.crc32(body)), 0)

    def close(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1
