"""From a directory to the parts of a log: what is there is cleared up, read, and after an unclean stop recovered."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from tidemark.storage import damage_note, history, leftovers, names
from tidemark.storage.checkpoints import read_partition_metadata, write_partition_metadata
from tidemark.storage.config import LogConfig
from tidemark.storage.deletion import rename_for_deletion
from tidemark.storage.epochs import EpochCache
from tidemark.storage.errors import CorruptLog, TopicIdMismatch
from tidemark.storage.files import Files
from tidemark.storage.producers import Producers
from tidemark.storage.recovery import Recovered, recover
from tidemark.storage.scan import Damage
from tidemark.storage.segment import Segment
from tidemark.storage.snapshots import SnapshotFiles

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    segments: list[Segment]
    unflushed: list[Segment]
    epochs: EpochCache
    producers: Producers
    snapshots: SnapshotFiles
    topic_id: bytes | None
    start_offset: int
    end_offset: int
    recovery_point: int
    created: bool
    changed: bool  # files were made or rebuilt, and not synced


def load(
    files: Files,
    directory: str,
    *,
    config: LogConfig,
    now_ms: int,
    topic_id: bytes | None,
    recovery_point: int,
    clean: bool,
    start_offset: int,
    cleaned_up_to: int = 0,
) -> Loaded:
    created = files.make_directory(directory)
    found = [] if created else leftovers.clear(files, directory)
    if damage_note.NAME in found:
        damage_note.check(files, directory)
    topic_id = _check_topic_id(files, directory, topic_id, is_known=names.PARTITION_METADATA in found)
    epochs = EpochCache.load(files, os.path.join(directory, names.EPOCHS))
    segments = _find_segments(files, directory, found, now_ms=now_ms)
    if not segments:
        segments = [Segment.create(files, directory, start_offset, created_ms=now_ms)]
        clean = True
    recovered = _end_of_log(
        segments,
        clean=clean,
        recovery_point=recovery_point,
        cleaned_up_to=cleaned_up_to,
        config=config,
        epochs=epochs,
    )
    _drop(files, directory, recovered.dropped)
    start_offset = max(start_offset, recovered.segments[0].base_offset)
    if start_offset > recovered.end_offset:
        recovered = _start_over(files, directory, recovered, start_offset=start_offset, now_ms=now_ms)
    if not epochs.is_known and any(segment.size for segment in recovered.segments):
        _restore_epochs(epochs, recovered.segments)
    epochs.truncate_end(recovered.end_offset)
    if recovered.scanned:
        _restore_first_epochs(epochs, recovered.segments, start_offset=start_offset, end_offset=recovered.end_offset)
    epochs.truncate_start(start_offset)
    snapshots = SnapshotFiles(files, directory, _snapshot_offsets(found))
    producers = Producers()
    history.rebuild(
        producers,
        snapshots,
        recovered.segments,
        end_offset=recovered.end_offset,
        from_snapshot_up_to=recovered.scanned_from if recovered.scanned else recovered.end_offset,
        index_aborts_from=recovered.scanned_from if recovered.scanned else recovered.end_offset,
    )
    if recovered.scanned and found:
        snapshots.remove_torn(after=recovered.scanned_from)
        # What was cut off must stay so: a snapshot that came back after another power cut would tell of other batches.
        files.sync_directory(directory)
    producers.expire(now_ms=now_ms, idle_ms=config.producer_id_expiration_ms)
    snapshots.keep_only(history.snapshot_bases(recovered.segments))
    for segment in recovered.segments[:-1]:
        segment.release()
    recovered.segments[-1].close_file()
    end_offset = recovered.end_offset
    return Loaded(
        segments=recovered.segments,
        unflushed=[each for each in recovered.segments[:-1] if each.base_offset >= recovered.scanned_from],
        epochs=epochs,
        producers=producers,
        snapshots=snapshots,
        topic_id=topic_id,
        start_offset=start_offset,
        end_offset=end_offset,
        recovery_point=min(recovery_point, end_offset) if recovered.scanned else end_offset,
        created=created,
        changed=created or recovered.scanned or not found,
    )


def _check_topic_id(files: Files, directory: str, topic_id: bytes | None, *, is_known: bool) -> bytes | None:
    path = os.path.join(directory, names.PARTITION_METADATA)
    stored = read_partition_metadata(files, path) if is_known else None
    if stored is None:
        if topic_id is not None:
            write_partition_metadata(files, path, topic_id)
        return topic_id
    if topic_id is not None and topic_id != stored:
        raise TopicIdMismatch(f"{directory} belongs to topic id {stored.hex()}, not {topic_id.hex()}")
    return stored


def _find_segments(files: Files, directory: str, found: Sequence[str], *, now_ms: int) -> list[Segment]:
    present = set(found)
    segments = []
    for name in sorted(name for name in found if name.endswith(names.LOG)):
        offset = names.offset_of(name)
        if offset is None:
            continue
        size = files.size(os.path.join(directory, name))
        aborts = names.file_name(offset, names.ABORTED_INDEX) in present
        segments.append(Segment(files, directory, offset, size=size, created_ms=now_ms, aborts=aborts))
    return segments


def _snapshot_offsets(found: Sequence[str]) -> list[int]:
    candidates = (names.offset_of(name) for name in found if name.endswith(names.SNAPSHOT))
    return [offset for offset in candidates if offset is not None]


def _end_of_log(
    segments: Sequence[Segment],
    *,
    clean: bool,
    recovery_point: int,
    cleaned_up_to: int,
    config: LogConfig,
    epochs: EpochCache,
) -> Recovered:
    if clean:
        try:
            end_offset = segments[-1].load_tail()
            return Recovered(segments=list(segments), dropped=[], end_offset=end_offset, scanned_from=end_offset)
        except Damage as damage:
            _logger.warning("%s: closed cleanly, yet %s; checking it", segments[-1].path(names.LOG), damage.reason)
            recovery_point = max(recovery_point, segments[-1].base_offset)
    recovered = recover(
        segments, recovery_point=recovery_point, cleaned_up_to=cleaned_up_to, config=config, epochs=epochs
    )
    return replace(recovered, scanned=True)


def _restore_epochs(epochs: EpochCache, segments: Sequence[Segment]) -> None:
    """Without its epochs a replica cannot find out where its log and the leader's differ, and would keep records that
    were never committed. The file is not synced when it is replaced, so a power cut may leave an empty one; but every
    batch names its epoch."""
    _logger.warning("%s is missing or damaged: restoring it from the batches", epochs.path)
    placed = (header for segment in segments for _, header in segment.headers(position=0))
    epochs.restore(
        (each.partition_leader_epoch, each.base_offset) for each in placed if each.partition_leader_epoch >= 0
    )


def _restore_first_epochs(
    epochs: EpochCache, segments: Sequence[Segment], *, start_offset: int, end_offset: int
) -> None:
    """Records were deleted, and before the new start was in the checkpoint the node was killed: they are back. The
    epochs before that start may be gone from their file: all of them, if it told only of one that was just to begin at
    the log's end. A follower that has other records of these would be told that they are the same."""
    known = epochs.entries()
    begun = known[0][1] if known else end_offset
    if begun <= start_offset:
        return
    first: dict[int, int] = {}
    try:
        for segment in takewhile(lambda each: each.base_offset < begun, segments):
            for _, header in takewhile(lambda placed: placed[1].base_offset < begun, segment.headers(position=0)):
                first.setdefault(header.partition_leader_epoch, header.base_offset)
        found = [(epoch, offset) for epoch, offset in first.items() if epoch >= 0]
        if found:
            epochs.restore([*found, *known])
    except (CorruptLog, OSError) as error:
        _logger.warning("%s does not tell of the first epochs: %s", epochs.path, error)


def _drop(files: Files, directory: str, dropped: Sequence[Segment]) -> None:
    """Removes segments behind a torn place, last first: whenever this is interrupted, a log without gaps remains."""
    for segment in reversed(dropped):
        segment.close_file()
        for path in rename_for_deletion(segment):
            files.remove(path)
    if dropped:
        files.sync_directory(directory)


def _start_over(files: Files, directory: str, old: Recovered, *, start_offset: int, now_ms: int) -> Recovered:
    """The log ends before it starts: its records had been deleted (DeleteRecords, retention) and their files' end was
    lost. Nothing in it is wanted any more."""
    _logger.warning("%s ends at %d, before its start %d: beginning anew", directory, old.end_offset, start_offset)
    _drop(files, directory, old.segments)
    segment = Segment.create(files, directory, start_offset, created_ms=now_ms)
    return replace(old, segments=[segment], end_offset=start_offset, scanned_from=start_offset)
