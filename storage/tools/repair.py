"""Makes a partition's log usable again, while no broker has it.

What can be derived from the batches is made anew. Records are dropped only where the user says so: from `truncate_at`
on. The log directory then counts as not cleanly closed, so that the node is not trusted with what it may have lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemark.storage import checkpoints, history, leftovers, names
from tidemark.storage.checking import Finding, SegmentFile, Step, segment_files
from tidemark.storage.epochs import EpochCache
from tidemark.storage.errors import CorruptFile, CorruptLog, OffsetOutOfRange
from tidemark.storage.files import REAL_FILES, Files
from tidemark.storage.producers import Producers
from tidemark.storage.scan import Damage, headers
from tidemark.storage.segment import Segment
from tidemark.storage.snapshots import SnapshotFiles
from tidemark.storage.tools.places import PartitionPlace, find_partitions
from tidemark.storage.tools.verify import verify


@dataclass(slots=True)
class Repaired:
    done: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)  # damage to batches: only records can be given up for it


def repair(
    place: PartitionPlace, *, truncate_at: int | None = None, files: Files = REAL_FILES
) -> Iterator[int | Repaired]:
    """Numbers tell how many bytes more were read; the last value is what was done."""
    repaired = Repaired()
    if any(name.endswith(names.SWAP) for name in files.list(place.path)):
        leftovers.clear(files, place.path)  # as a start does: what looks like a hole is in the cleaned segment
        repaired.done.append(f"{place.path}: a cleaning that was interrupted is finished")
        place = find_partitions(files, place.path)[0]
    if truncate_at is not None:
        repaired.done += _truncate(files, place, truncate_at)
        place = find_partitions(files, place.path)[0]
    found: list[Finding] = []
    for step in verify(place, files):
        yield from _sorted(step, found)
    if any(each.is_derived for each in found):
        repaired.done += _rebuild(files, place, found)
        found = []
        for step in verify(place, files):
            yield from _sorted(step, found)
    repaired.left = found
    yield repaired


def _sorted(step: Step, found: list[Finding]) -> Iterator[int]:
    if isinstance(step, Finding):
        found.append(step)
    else:
        yield step


# Rebuilding


def _rebuild(files: Files, place: PartitionPlace, found: list[Finding]) -> list[str]:
    """Every derived file that something is wrong with."""
    damaged = {each.base_offset for each in found if not each.is_derived}
    derived = {each.path for each in found if each.is_derived}
    done = []
    for path in sorted(derived):
        if path.endswith(names.SNAPSHOT):
            files.remove(path)
            done.append(f"{path} removed: the producers' states are read from the log instead")
    for segment in _segments(files, place.path):
        own = {segment.path(names.OFFSET_INDEX), segment.path(names.TIME_INDEX)} & derived
        if own and segment.base_offset not in damaged:
            segment.rebuild_indexes()
            segment.indexes.save()
            done += [f"{path} rebuilt" for path in sorted(own)]
    if any(path.endswith(names.ABORTED_INDEX) for path in derived) and not damaged:
        _rebuild_aborted(files, place)
        done.append(f"{place.path}: indexes of aborted transactions rebuilt")
    if os.path.join(place.path, names.EPOCHS) in derived and not damaged:
        _restore_epochs(files, place)
        done.append(f"{os.path.join(place.path, names.EPOCHS)} restored")
    metadata = os.path.join(place.path, names.PARTITION_METADATA)
    if metadata in derived:
        files.remove(metadata)
        done.append(f"{metadata} removed: the broker writes it anew")
    files.sync_directory(place.path)
    return done


def _segments(files: Files, directory: str) -> list[Segment]:
    return [
        Segment(
            files,
            directory,
            each.base_offset,
            size=each.size,
            created_ms=0,
            aborts=files.exists(os.path.join(directory, names.file_name(each.base_offset, names.ABORTED_INDEX))),
        )
        for each in segment_files(files, directory)
    ]


def _rebuild_aborted(files: Files, place: PartitionPlace) -> None:
    segments = _segments(files, place.path)
    for segment in segments:
        segment.reset_aborts()
    first = segments[0].base_offset
    snapshots = SnapshotFiles(files, place.path, [first] if _has_snapshot(files, place.path, first) else [])
    history.rebuild(
        Producers(),
        snapshots,
        segments,
        end_offset=_end_of(segments),
        from_snapshot_up_to=first,
        index_aborts_from=first,
    )


def _has_snapshot(files: Files, directory: str, offset: int) -> bool:
    return files.exists(os.path.join(directory, names.file_name(offset, names.SNAPSHOT)))


def _end_of(segments: list[Segment]) -> int:
    end = segments[-1].base_offset
    for _, header in segments[-1].headers(position=0):
        end = header.next_offset
    return end


def _restore_epochs(files: Files, place: PartitionPlace) -> None:
    epochs = EpochCache(files, os.path.join(place.path, names.EPOCHS))
    placed = (header for segment in _segments(files, place.path) for _, header in segment.headers(position=0))
    epochs.restore((each.partition_leader_epoch, each.base_offset) for each in placed)


# Truncating


def _truncate(files: Files, place: PartitionPlace, offset: int) -> list[str]:
    """Drops every batch that ends at or after `offset`; what is damaged before it stays."""
    first = place.segments[0].base_offset
    if offset < first:
        raise OffsetOutOfRange(offset=offset, start=first, end=place.segments[-1].base_offset)
    kept = [each for each in place.segments if each.base_offset <= offset]
    position = _position_of(files, _log_path(place.path, kept[-1].base_offset), size=kept[-1].size, offset=offset)
    # A node that gives up records must not be believed to have everything that it once had (KIP-966).
    files.remove(os.path.join(place.log_directory, checkpoints.CLEAN_SHUTDOWN))
    files.sync_directory(place.log_directory)  # before a record goes
    done = []
    for each in reversed(place.segments[len(kept) :]):
        for suffix in names.SEGMENT_SUFFIXES:
            files.remove(os.path.join(place.path, names.file_name(each.base_offset, suffix)))
        done.append(f"segment {each.base_offset} removed, {each.size} bytes")
    done += _cut(files, place.path, kept[-1], position=position, offset=offset)
    for name in files.list(place.path):
        of = names.offset_of(name)
        if of is not None and of > offset and name.endswith(names.SNAPSHOT):
            files.remove(os.path.join(place.path, name))
    EpochCache.load(files, os.path.join(place.path, names.EPOCHS)).truncate_end(offset)
    _lower_checkpoints(files, place, offset)
    files.sync_directory(place.path)
    return done


def _log_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, names.file_name(base_offset, names.LOG))


def _cut(files: Files, directory: str, cut: SegmentFile, *, position: int, offset: int) -> list[str]:
    if position == cut.size:
        return []
    path = _log_path(directory, cut.base_offset)
    files.truncate_file(path, position)
    files.sync_file(path)
    segment = next(each for each in _segments(files, directory) if each.base_offset == cut.base_offset)
    segment.rebuild_indexes()
    segment.indexes.save()
    if segment.has_aborts:
        segment.aborted_index().keep_before(offset)
    return [f"{path} cut at byte {position}: {cut.size - position} bytes"]


def _position_of(files: Files, path: str, *, size: int, offset: int) -> int:
    """Where the first batch starts that ends at or after `offset`. What is asked for is dropped, and no more."""
    file = files.open_to_read(path)
    next_offset = names.offset_of(os.path.basename(path)) or 0
    try:
        for position, header in headers(files, file.fileno(), position=0, end=size):
            if header.last_offset >= offset:
                return position
            next_offset = header.next_offset
    except Damage as damage:
        if next_offset < offset:
            reason = f"{damage.reason}; what follows cannot be told apart: only --truncate-at {next_offset} is possible"
            raise CorruptLog(path=path, position=damage.position, reason=reason) from None
        return damage.position
    finally:
        file.close()
    return size


def _lower_checkpoints(files: Files, place: PartitionPlace, offset: int) -> None:
    key = place.topic, place.partition
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS, checkpoints.CLEANED_UP_TO):
        path = os.path.join(place.log_directory, name)
        try:
            offsets = checkpoints.read_offsets(files, path)
        except (FileNotFoundError, CorruptFile):
            continue
        if offsets.get(key, 0) > offset:
            checkpoints.write_offsets(files, path, {**offsets, key: offset})
