"""A log's producers through time: what they wrote, the snapshots of that, and how to build it anew from the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.protocol.records import BatchHeader, Buffer, EndTransaction, InvalidBatch, read_end_transaction
from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.producers import Producers
from tidemark.storage.segment import Segment
from tidemark.storage.snapshots import SnapshotFiles

CONTROL = 0x20  # a batch header's attribute


def note_batch(
    producers: Producers, header: BatchHeader, marker: EndTransaction | None, *, first_offset: int, last_offset: int
) -> AbortedTransaction | None:
    """Takes note of a producer's batch, now in the log. Returns the transaction that it aborts, if it does."""
    if not header.attributes & CONTROL:
        producers.appended(header, first_offset=first_offset, last_offset=last_offset)
        return None
    if marker is None:
        return None
    ended = producers.ended(
        header, offset=last_offset, commit=marker.commit, coordinator_epoch=marker.coordinator_epoch
    )
    if ended is None or not ended.aborted:
        return None
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)


def read_marker(batch: Buffer) -> EndTransaction | None:
    """The marker in a stored control batch; None for other control records, or if compaction has emptied it."""
    try:
        return read_end_transaction(batch)
    except InvalidBatch:
        return None


def rebuild(
    producers: Producers,
    snapshots: SnapshotFiles,
    segments: Sequence[Segment],
    *,
    end_offset: int,
    from_snapshot_up_to: int,
    index_aborts_from: int,
    remembered: tuple[int, Producers] | None = None,
) -> None:
    """Brings `producers` to the state at the log's end: the newest snapshot at or before `from_snapshot_up_to`, or the
    `remembered` state if that is newer, then every batch after it. Aborts found in segments from offset
    `index_aborts_from` on are written to their indexes."""
    snapshots.remove_after(end_offset)
    if remembered is not None and remembered[0] >= max(snapshots.offsets(), default=0):
        position = remembered[0]
        producers.restore(remembered[1])
    else:
        loaded = snapshots.load_newest(up_to=from_snapshot_up_to)
        position, entries = loaded if loaded is not None else (segments[0].base_offset, [])
        producers.load(entries)
    following = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, next_base in zip(segments, following, strict=True):
        if next_base > position and segment.size:
            _replay(producers, segment, from_offset=position, index_aborts=segment.base_offset >= index_aborts_from)


def _replay(producers: Producers, segment: Segment, *, from_offset: int, index_aborts: bool) -> None:
    fd = segment.open_file().fileno()
    for position, header in segment.headers(position=segment.locate(from_offset)):
        if header.producer_id < 0:
            continue
        marker = None
        if header.attributes & CONTROL:
            marker = read_marker(segment.files.read_range(fd, position=position, length=header.size))
        aborted = note_batch(producers, header, marker, first_offset=header.base_offset, last_offset=header.last_offset)
        if aborted is not None and index_aborts:
            segment.add_abort(aborted)


def snapshot_bases(segments: Iterable[Segment]) -> set[int]:
    return {segment.base_offset for segment in segments}
