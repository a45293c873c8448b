"""A partition's segment files, read in bulk beside a running broker.

The broker appends to the last file, removes whole files, and compaction replaces them. So all files of a range are
opened first, and used only if the directory looks the same before and after: what is open cannot change below the high
watermark. Whatever is unexpected is no error here but `FilesUnusable`, and the rest is read over the protocol.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from tidemark import portable
from tidemark.pipeline.source.walking import AbortedTransactions, Walk, walk
from tidemark.protocol.records import HEADER_SIZE, InvalidBatch, read_header
from tidemark.storage import REAL_FILES, names
from tidemark.storage.aborted import AbortedIndex
from tidemark.storage.checkpoints import META_PROPERTIES, read_partition_metadata, read_properties

CHUNK_BYTES = 4 << 20
FIRST_CHUNK_BYTES = 128 << 10  # a small piece, one of many, is not worth a large buffer; a large one soon has one
OPEN_FILES_MAX = 512
_ATTEMPTS = 5


class FilesUnusable(Exception):
    """The files cannot be reached, are not the right ones, or do not hold (all of) the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a partition's files should be, and by what they are recognised."""

    log_dir: str
    cluster_id: str
    node_id: int
    topic: str
    topic_id: bytes
    partition: int

    @property
    def directory(self) -> str:
        return os.path.join(self.log_dir, names.directory_name(topic=self.topic, partition=self.partition))

    def check(self) -> None:
        """Raises FilesUnusable unless these are the files of this partition on this node: another machine may well
        have a directory of the same name."""
        try:
            meta = read_properties(REAL_FILES, os.path.join(self.log_dir, META_PROPERTIES))
            topic_id = read_partition_metadata(REAL_FILES, os.path.join(self.directory, names.PARTITION_METADATA))
        except (OSError, ValueError) as error:
            raise FilesUnusable(f"{self.log_dir}: {error}") from error
        found = (meta.get("cluster.id"), meta.get("node.id", meta.get("broker.id")), topic_id)
        if found != (self.cluster_id, str(self.node_id), self.topic_id):
            raise FilesUnusable(f"{self.directory} does not belong to this topic of this broker")


class SegmentFiles:
    """The open segments of a range of offsets."""

    def __init__(self, place: Place, *, first: int, end: int) -> None:
        self._place = place
        self._first = first
        self._end = end
        self._segments: list[tuple[int, int]] = []  # base offset and descriptor, in order
        self._open_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for _, fd in self._segments:
            os.close(fd)
        self._segments = []

    def _open_all(self) -> None:
        try:
            for _ in range(_ATTEMPTS):
                if self._open_once():
                    return
                self.close()
        except OSError as error:
            self.close()
            raise FilesUnusable(str(error)) from error
        raise FilesUnusable(f"{self._place.directory} keeps changing")

    def _open_once(self) -> bool:
        """False when files were replaced or removed meanwhile."""
        before = _listing(self._place.directory)
        if before is None:
            return False
        wanted = _covering(sorted(before), first=self._first, end=self._end)
        if len(wanted) > OPEN_FILES_MAX:
            raise FilesUnusable(f"{len(wanted)} segments are too many to open at once")
        for base in wanted:
            path = os.path.join(self._place.directory, names.file_name(base, names.LOG))
            try:
                self._segments.append((base, os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
            except FileNotFoundError:
                return False
        after = _listing(self._place.directory)
        if after is None or any(after.get(base) != before[base] for base in wanted):
            return False
        return all(os.fstat(fd).st_ino == before[base] for base, fd in self._segments)

    def aborted(self) -> AbortedTransactions:
        """The aborted transactions that touch the range. A marker may be in a segment far behind it.

        Not if one of these segments has been removed or compacted since it was opened, or is now: the index of aborted
        transactions that it had goes with it (the log first), and all that it told of would count as committed."""
        found = []
        listed = _listing(self._place.directory)
        if listed is None or any(listed.get(base) != os.fstat(fd).st_ino for base, fd in self._segments):
            raise FilesUnusable(f"{self._place.directory} is changing")
        later = [base for base in sorted(listed) if not self._segments or base >= self._segments[0][0]]
        for base in later:
            path = os.path.join(self._place.directory, names.file_name(base, names.ABORTED_INDEX))
            entries, complete = AbortedIndex(REAL_FILES, path).collect(first=self._first, end=self._end)
            found += [(entry.producer_id, entry.first_offset) for entry in entries]
            if complete:
                break
        after = _listing(self._place.directory)
        if after is None or any(after.get(base) != listed[base] for base in later):
            raise FilesUnusable(f"{self._place.directory} is changing")
        return AbortedTransactions(found)

    def read(self, aborted: AbortedTransactions) -> Iterator[tuple[memoryview, Walk]]:
        """Pieces of the files with the batches in them. The bytes of one are overwritten by the next.

        Raises FilesUnusable when the files end before the range does; what was handed out before is good.
        """
        buffer = bytearray(FIRST_CHUNK_BYTES)
        first = self._first
        for base, fd in self._segments:
            portable.advise_sequential(fd)
            at = _position(fd, self._index_path(base), first, base=base)
            while data := memoryview(buffer)[: portable.read_into(fd, buffer, at)]:
                try:
                    seen = walk(data, first=first, end=self._end, aborted=aborted)
                except InvalidBatch as error:
                    raise FilesUnusable(f"{self._place.directory}, segment {base}, byte {at}: {error}") from error
                yield data, seen
                if seen.at_end:
                    return
                if not seen.consumed:
                    buffer = _room_for_batch(data, fd, at)
                elif len(buffer) < CHUNK_BYTES:
                    buffer = bytearray(min(4 * len(buffer), CHUNK_BYTES))
                at += seen.consumed
                first = max(first, seen.next_offset)
        raise FilesUnusable(f"{self._place.directory} ends before offset {self._end}")

    def _index_path(self, base: int) -> str:
        return os.path.join(self._place.directory, names.file_name(base, names.OFFSET_INDEX))


def _listing(directory: str) -> dict[int, int] | None:
    """The segments: base offset and inode. None while compaction is exchanging files."""
    found: dict[int, int] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            base = names.offset_of(entry.name)
            if base is None:
                continue
            if entry.name.endswith(names.SWAP):
                return None
            if entry.name == names.file_name(base, names.LOG):
                found[base] = entry.inode()
    return found


def _covering(bases: list[int], *, first: int, end: int) -> list[int]:
    """The segments that hold offsets first..end-1."""
    before = [base for base in bases if base <= first]
    if not before:
        raise FilesUnusable(f"offset {first} is not in the files")
    return [base for base in bases if before[-1] <= base < max(end, first + 1)]


def _position(fd: int, index_path: str, offset: int, *, base: int) -> int:
    """A batch at or before `offset`, by the sparse index: its entries are the last offset of a batch, and where that
    batch begins. The file may lag behind the log, and Kafka's ends in zeros; what it says is checked in the log."""
    if offset <= base:
        return 0
    try:
        entries = np.frombuffer(REAL_FILES.read_all(index_path)[: (1 << 31) & ~7], dtype=">i4")
    except OSError:
        return 0
    offsets, positions = entries[: len(entries) & ~1].reshape(-1, 2).T.astype(np.int64)
    fallen = np.flatnonzero(np.diff(offsets) <= 0)
    rising = int(fallen[0]) + 1 if fallen.size else len(offsets)
    entry = int(np.searchsorted(offsets[:rising], offset - base, side="right")) - 1
    if entry < 0:
        return 0
    at = int(positions[entry])
    head = os.pread(fd, HEADER_SIZE, at)
    if len(head) < HEADER_SIZE:
        return 0
    header = read_header(head)
    return at if header.magic == 2 and header.last_offset == base + int(offsets[entry]) else 0


def _room_for_batch(data: memoryview, fd: int, at: int) -> bytearray:
    """A buffer that holds the batch at `at`, which was larger than the one before."""
    size = read_header(data).size if len(data) >= HEADER_SIZE else 0
    if not len(data) < size <= os.fstat(fd).st_size - at:
        raise FilesUnusable("a segment ends inside a batch")
    return bytearray(size)
