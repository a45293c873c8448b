"""Whether what is on the disk is what was written: every batch of a log, and every file that is made from the batches.

A batch's CRC covers all but its base offset, length, epoch and magic. Those are held against the batches before and
after it, against the indexes and against the epochs, so that a bit that flipped anywhere is found. What is found is of
two kinds: the batches are damaged, or a file is that can be made from them anew (`is_derived`).

A check is a generator, since a log may be large: it yields what it finds, and (as a number) how many bytes it has read
since it last said so. The caller decides how fast it goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tidemark.protocol.records import BatchHeader
from tidemark.storage import history, names
from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.checkpoints import decode_lines, encode_lines, encode_partition_metadata, read_partition_metadata
from tidemark.storage.entries import AbortedEntries, OffsetEntries, TimeEntries
from tidemark.storage.errors import CorruptFile
from tidemark.storage.files import Files
from tidemark.storage.index import MAX_RELATIVE_OFFSET
from tidemark.storage.producers import Producers
from tidemark.storage.scan import Damage, checked_headers, find_batch
from tidemark.storage.snapshots import decode as decode_snapshot

PROGRESS_BYTES = 1 << 20
FINDINGS_MAX = 100  # of one segment's files: the first tell enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it was written."""

    path: str
    position: int
    reason: str
    is_derived: bool  # the file can be made anew from the batches
    base_offset: int = -1  # of the segment that it belongs to
    aborted: tuple[AbortedTransaction, ...] | None = None  # what an index of aborted transactions should hold, if known

    def __str__(self) -> str:
        return f"{self.path}, byte {self.position}: {self.reason}"


Step = Finding | int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    base_offset: int
    size: int
    # Of a segment that a broker is writing to: how many entries of its indexes are in their files for sure. None: all.
    offset_entries: int | None = None
    time_entries: int | None = None
    is_live: bool = False  # more may have been written since


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a log beside its files, as far as it is."""

    topic_id: bytes | None = None
    end_offset: int | None = None
    following: int | None = None  # where the segment after the last of these begins, if that is not the log's last
    epochs: Sequence[tuple[int, int]] | None = None  # (epoch, first offset)
    compacted: bool = False  # offsets may be missing


@dataclass(slots=True)
class _Walk:
    """Where a check has got to in the log."""

    next_offset: int
    epoch: int = -1
    producers: Producers = field(default_factory=Producers)
    knows_producers: bool = True  # nothing is missing so far: the producers' states are what they were
    has_gaps: bool = False
    is_damaged: bool = False


def segment_files(files: Files, directory: str) -> list[SegmentFile]:
    """The segments of a partition's directory, in order."""
    found = ((names.offset_of(name), name) for name in sorted(files.list(directory)) if name.endswith(names.LOG))
    return [
        SegmentFile(base_offset=offset, size=files.size(os.path.join(directory, name)))
        for offset, name in found
        if offset is not None
    ]


def check_log(files: Files, directory: str, segments: Sequence[SegmentFile], known: Known) -> Iterator[Step]:
    """Checks these segments and everything beside them in the directory."""
    yield from check_side_files(files, directory, known)
    yield from check_segments(files, directory, segments, known)


def check_segments(files: Files, directory: str, segments: Sequence[SegmentFile], known: Known) -> Iterator[Step]:
    """Checks these segments, which follow each other, and their indexes."""
    if not segments:
        return
    epochs = known.epochs if known.epochs is not None else read_epochs(files, directory)
    walk = _Walk(segments[0].base_offset)
    # What compaction has taken cannot be told from what is left: a transaction that was aborted may be empty by now.
    walk.knows_producers = _load_producers(files, directory, walk) and not known.compacted
    for at, segment in enumerate(segments):
        if at and segment.base_offset != walk.next_offset:
            yield from _check_gap(directory, segment, walk, known)
        is_last = at + 1 == len(segments) and known.following is None
        yield from check_segment(files, directory, segment, walk, epochs, is_sealed=not is_last)
    yield from _check_end(directory, segments[-1], walk, known)


def _check_end(directory: str, last: SegmentFile, walk: _Walk, known: Known) -> Iterator[Finding]:
    if walk.is_damaged:
        return
    reason = None
    if known.following is not None and not _may_follow(known.following, walk, known):
        reason = f"the segment ends at offset {walk.next_offset}, and the next begins at {known.following}"
    elif known.end_offset is not None and walk.next_offset != known.end_offset:
        reason = f"the log ends at offset {walk.next_offset}, and should at {known.end_offset}"
    if reason is not None:
        path = os.path.join(directory, names.file_name(last.base_offset, names.LOG))
        yield Finding(path=path, position=last.size, reason=reason, is_derived=False, base_offset=last.base_offset)


def _check_gap(directory: str, segment: SegmentFile, walk: _Walk, known: Known) -> Iterator[Finding]:
    walk.knows_producers = False
    if not _may_follow(segment.base_offset, walk, known) and not walk.is_damaged:
        path = os.path.join(directory, names.file_name(segment.base_offset, names.LOG))
        reason = f"the segment before it ends at offset {walk.next_offset}"
        yield Finding(path=path, position=0, reason=reason, is_derived=False, base_offset=segment.base_offset)
    walk.next_offset = max(walk.next_offset, segment.base_offset)


def _may_follow(base_offset: int, walk: _Walk, known: Known) -> bool:
    """Whether a segment may begin there. Compaction leaves gaps; a large one is a leap of replicated offsets."""
    gap = base_offset - walk.next_offset
    return gap == 0 or (gap > 0 and (walk.has_gaps or known.compacted or gap > MAX_RELATIVE_OFFSET // 2))


def _load_producers(files: Files, directory: str, walk: _Walk) -> bool:
    """The producers at the log's first offset. False if they are not known: a transaction may have begun before it."""
    path = os.path.join(directory, names.file_name(walk.next_offset, names.SNAPSHOT))
    try:
        walk.producers.load(decode_snapshot(files.read_all(path), path=path))
    except (FileNotFoundError, CorruptFile):
        return walk.next_offset == 0
    return True


# One segment


def check_segment(
    files: Files,
    directory: str,
    segment: SegmentFile,
    walk: _Walk,
    epochs: Sequence[tuple[int, int]] | None,
    *,
    is_sealed: bool,
) -> Iterator[Step]:
    """Every batch, and every entry of its indexes. `is_sealed`: it is not the log's last."""
    stem = os.path.join(directory, names.file_name(segment.base_offset, ""))
    offsets = OffsetEntries(files, stem + names.OFFSET_INDEX, segment.base_offset, limit=segment.offset_entries)
    times = TimeEntries(files, stem + names.TIME_INDEX, segment.base_offset, limit=segment.time_entries)
    aborted: list[AbortedTransaction] = []
    unsaid = 0
    file = files.open_to_read(stem + names.LOG)
    try:
        for found in _batches(files, file.fileno(), segment, walk):
            if isinstance(found, Damage):
                yield _damaged(stem, segment, found)
                continue
            position, header = found
            if (why := _wrong_epoch(header, walk, epochs)) is not None:
                yield _damaged(stem, segment, Damage(position, why))
            offsets.note(position, header)
            times.note(header)
            _note_producer(files, file.fileno(), position, header, walk, aborted)
            unsaid += header.size
            if unsaid >= PROGRESS_BYTES:
                yield unsaid
                unsaid = 0
    finally:
        file.close()
    yield unsaid
    problems = [*offsets.finish(), *times.finish(is_sealed=is_sealed)]
    known_aborts = tuple(aborted) if walk.knows_producers else None
    problems += AbortedEntries(files, stem + names.ABORTED_INDEX).problems(
        known_aborts, first=segment.base_offset, end=walk.next_offset, is_live=segment.is_live
    )
    for path, position, reason in problems[:FINDINGS_MAX]:
        yield Finding(
            path=path,
            position=position,
            reason=reason,
            is_derived=True,
            base_offset=segment.base_offset,
            aborted=known_aborts,
        )


def _batches(files: Files, fd: int, segment: SegmentFile, walk: _Walk) -> Iterator[tuple[int, BatchHeader] | Damage]:
    """The batches of a segment that are whole; between them, what is wrong."""
    position = 0
    while position < segment.size:
        try:
            for place, header in checked_headers(
                files, fd, position=position, end=segment.size, next_offset=walk.next_offset
            ):
                position = place
                if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                    raise Damage(place, f"offset {header.last_offset} is too far from the segment's first")
                if header.base_offset != walk.next_offset:
                    walk.knows_producers, walk.has_gaps = False, True
                yield place, header
                walk.next_offset = header.next_offset
            return
        except Damage as damage:
            walk.knows_producers, walk.is_damaged = False, True
            yield damage
            following = find_batch(
                files, fd, position=damage.position + 1, end=segment.size, next_offset=segment.base_offset
            )
            if following is None:
                return
            position = following
            walk.next_offset = segment.base_offset


def _damaged(stem: str, segment: SegmentFile, damage: Damage) -> Finding:
    return Finding(
        path=stem + names.LOG,
        position=damage.position,
        reason=damage.reason,
        is_derived=False,
        base_offset=segment.base_offset,
    )


def _wrong_epoch(header: BatchHeader, walk: _Walk, epochs: Sequence[tuple[int, int]] | None) -> str | None:
    """The epoch lies outside the CRC: it may not fall, and must be what the checkpoint says."""
    epoch = header.partition_leader_epoch
    before, walk.epoch = walk.epoch, epoch
    if epoch < before:
        return f"leader epoch {epoch} after {before}"
    if epochs is None or epoch < 0:
        return None
    told = next((each for each, start in reversed(epochs) if start <= header.base_offset), None)
    if told is not None and told != epoch:
        return f"leader epoch {epoch} at offset {header.base_offset}, where {told} was written"
    return None


def _note_producer(
    files: Files, fd: int, position: int, header: BatchHeader, walk: _Walk, aborted: list[AbortedTransaction]
) -> None:
    if header.producer_id < 0:
        return
    marker = None
    if header.attributes & history.CONTROL:
        marker = history.read_marker(files.read_range(fd, position=position, length=header.size))
    ended = history.note_batch(
        walk.producers, header, marker, first_offset=header.base_offset, last_offset=header.last_offset
    )
    walk.producers.forget_replicated(header.next_offset)
    if ended is not None:
        aborted.append(ended)


# The files beside the segments


def check_side_files(files: Files, directory: str, known: Known) -> Iterator[Finding]:
    for name in sorted(files.list(directory)):
        if name.endswith(names.SNAPSHOT) and names.offset_of(name) is not None:
            yield from _check_snapshot(files, os.path.join(directory, name))
    yield from _check_epochs(files, directory, known)
    yield from _check_topic_id(files, directory, known)


def _check_snapshot(files: Files, path: str) -> Iterator[Finding]:
    try:
        decode_snapshot(files.read_all(path), path=path)
    except FileNotFoundError:
        return
    except CorruptFile as error:
        yield Finding(path=path, position=0, reason=str(error), is_derived=True)


def read_epochs(files: Files, directory: str) -> list[tuple[int, int]] | None:
    """(epoch, first offset) as the checkpoint says; None if it is absent or cannot be read."""
    path = os.path.join(directory, names.EPOCHS)
    try:
        lines = decode_lines(files.read_all(path), path=path)
        return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
    except (FileNotFoundError, ValueError, CorruptFile):
        return None


def _check_epochs(files: Files, directory: str, known: Known) -> Iterator[Finding]:
    path = os.path.join(directory, names.EPOCHS)
    try:
        data = files.read_all(path)
    except FileNotFoundError:
        return
    entries = read_epochs(files, directory)
    reason = None
    if entries is None:
        reason = "it cannot be read as a checkpoint"
    elif data != encode_lines([f"{epoch} {start}" for epoch, start in entries]):
        reason = "it is not as it was written"
    elif known.epochs is not None and not _is_prefix(_from_start_of(known.epochs, entries), known.epochs):
        reason = f"it says {entries}, and should {list(known.epochs)}"
    elif any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
        reason = "epochs and their offsets must rise"
    if reason is not None:
        yield Finding(path=path, position=0, reason=reason, is_derived=True)


def _from_start_of(known: Sequence[tuple[int, int]], written: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where the log's start has moved on, the file still says what was before. The start may be the log's end, too,
    where an epoch begins that has no batch yet."""
    epoch_there, start = known[0] if known else (-1, 0)
    before = [epoch for epoch, first in written if first < start]
    rest = [(epoch, first) for epoch, first in written if first >= start]
    is_unwritten = len(known) == 1 and not rest and before and before[-1] < epoch_there
    if before and not is_unwritten and (not rest or rest[0][1] > start):
        rest.insert(0, (before[-1], start))
    return rest


def _is_prefix(written: Sequence[tuple[int, int]], known: Sequence[tuple[int, int]]) -> bool:
    """An epoch that has no batch yet is not written."""
    return list(known[: len(written)]) == list(written) and len(known) - len(written) <= 1


def _check_topic_id(files: Files, directory: str, known: Known) -> Iterator[Finding]:
    path = os.path.join(directory, names.PARTITION_METADATA)
    try:
        data = files.read_all(path)
    except FileNotFoundError:
        return
    topic_id = read_partition_metadata(files, path)
    if topic_id is None:
        yield Finding(path=path, position=0, reason="it names no topic id", is_derived=True)
    elif known.topic_id is not None and topic_id != known.topic_id:
        yield Finding(path=path, position=0, reason="it names another topic's id", is_derived=True)
    elif data not in (written := encode_partition_metadata(topic_id), written.removesuffix(b"\n")):
        yield Finding(path=path, position=0, reason="it is not as it was written", is_derived=True)
