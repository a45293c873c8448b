"""After an unclean stop: reads everything past the recovery point, and decides what a broken batch means.

Two very different things look alike:

* A torn tail. A process was killed, or the power failed, while bytes were on their way to the disk. What was torn off
  had not been synced, so no acknowledgement depended on it; it is cut off and the log goes on from there.
* Damage. Bytes that had been written whole are wrong now. Cutting there would silently take acknowledged records with
  it, so the log refuses to open (CorruptLog) and the replica must be restored.

Below the recovery point everything was synced: a broken batch is damage. Beyond it:

* The batch is whole, and its offset goes back: nothing that is torn off looks so. It is damage, to an offset, which no
  checksum covers. (Old bytes cannot show up behind new ones: a truncation is synced before anything is appended. Only
  the undoing of a failed write is not, and that comes at once, before the bytes could reach the disk.)
* Nothing whole follows the broken batch, in this file or a later one: a torn tail.
* Whole batches follow. A killed process cannot cause that, for the kernel keeps what was written in order. A power cut
  can: pages reach the disk in any order. But it leaves a trace: a page that never arrived reads as zeros up to its end,
  and a file that was not the last when the power failed may end inside a batch. With such a trace it is a torn tail
  (nothing after it had been synced either, for a sync covers all earlier bytes). Without, it is damage.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.storage import names
from tidemark.storage.config import LogConfig
from tidemark.storage.epochs import EpochCache
from tidemark.storage.errors import CorruptLog
from tidemark.storage.index import MAX_RELATIVE_OFFSET
from tidemark.storage.scan import Damage, checked_headers, find_batch
from tidemark.storage.segment import Segment

_PAGE = 4096
_LONG_BYTES = 256 << 20  # takes a second or so
_ZEROS_MIN = 64  # so many before a page's end are taken for a page that was never written

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    segments: list[Segment]
    dropped: list[Segment]  # beyond the torn place; their files are still there
    end_offset: int
    scanned_from: int
    scanned: bool = False


def recover(
    segments: Sequence[Segment], *, recovery_point: int, config: LogConfig, epochs: EpochCache, cleaned_up_to: int = 0
) -> Recovered:
    """Checks every batch from the segment that holds the recovery point on, and rebuilds those segments' indexes.
    Nothing past the recovery point was cleaned, and nothing past `cleaned_up_to`, whichever is later."""
    first = max((at for at, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)
    scanned_from = end_offset = segments[first].base_offset
    if first > 0 and scanned_from == recovery_point:
        # The segment before may have been ended while the last sync was under way, which did not cover its indexes.
        segments[first - 1].complete_indexes()
    kept = len(segments)
    to_read = sum(segment.size for segment in segments[first:])
    if to_read >= _LONG_BYTES:
        _logger.info("%s: checking %d MB, from offset %d on", segments[0].directory, to_read >> 20, scanned_from)
    for at in range(first, len(segments)):
        segment = segments[at]
        if at > first and not _follows(
            segment,
            end_offset=end_offset,
            recovery_point=recovery_point,
            may_have_gap=segment.base_offset <= cleaned_up_to
            or (config.compact and (end_offset < recovery_point or not recovery_point)),
        ):
            kept = at
            break
        end_offset, damage = _scan(segment, config=config, epochs=epochs)
        if damage is not None:
            _refuse_unless_torn(
                segment, segments[at + 1 :], damage, next_offset=end_offset, recovery_point=recovery_point
            )
            _cut(segment, damage, end_offset=end_offset)
            kept = at + 1
            break
    return Recovered(
        segments=list(segments[:kept]),
        dropped=list(segments[kept:]),
        end_offset=end_offset,
        scanned_from=scanned_from,
    )


def _follows(segment: Segment, *, end_offset: int, recovery_point: int, may_have_gap: bool) -> bool:
    """Whether a segment begins where the one before ends. If it begins later, the end of that one never reached the
    disk: what follows it was not synced either. Where a log was compacted there are such gaps, too, and they mean
    nothing; nor does a leap so large that the log itself begins a new segment for it."""
    gap = segment.base_offset - end_offset
    if gap == 0 or (gap > 0 and may_have_gap) or gap > MAX_RELATIVE_OFFSET // 2:
        return True
    if gap > 0 and end_offset >= recovery_point:
        _logger.warning(
            "%s: the log before it ends at offset %d; dropping what follows, which was never synced",
            segment.path(names.LOG),
            end_offset,
        )
        return False
    raise CorruptLog(
        path=segment.path(names.LOG),
        position=0,
        reason=f"the segment before it ends at offset {end_offset}, recovery point {recovery_point}",
    )


def _scan(segment: Segment, *, config: LogConfig, epochs: EpochCache) -> tuple[int, Damage | None]:
    """Walks over a segment's batches, noting each. Returns where the whole ones end, and what is wrong there if any."""
    segment.index_interval_bytes = config.index_interval_bytes
    segment.start_rebuild()
    segment.reset_aborts()
    end_offset = segment.base_offset
    last_epoch = -1
    fd = segment.open_file().fileno()
    damage = None
    try:
        for position, header in checked_headers(
            segment.files, fd, position=0, end=segment.size, next_offset=end_offset
        ):
            last_offset = header.last_offset
            if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                raise Damage(position, f"offset {last_offset} is too far from the segment's first")
            epoch = header.partition_leader_epoch
            if 0 <= epoch < last_epoch:  # no checksum covers it
                raise Damage(position, f"leader epoch {epoch} follows {last_epoch}")
            if epoch > last_epoch:
                last_epoch = epoch
                if epoch > epochs.latest:
                    epochs.assign(epoch=epoch, start=header.base_offset)
            segment.note_batch(
                position=position,
                size=header.size,
                base_offset=header.base_offset,
                last_offset=last_offset,
                timestamp=header.max_timestamp,
            )
            end_offset = last_offset + 1
    except Damage as found:
        damage = found
    segment.finish_rebuild()
    return end_offset, damage


def _refuse_unless_torn(
    segment: Segment, later: Sequence[Segment], damage: Damage, *, next_offset: int, recovery_point: int
) -> None:
    def refuse(why: str) -> CorruptLog:
        reason = f"{damage.reason} (offset {next_offset}); {why}"
        return CorruptLog(path=segment.path(names.LOG), position=damage.position, reason=reason)

    if next_offset < recovery_point:
        raise refuse(f"everything below offset {recovery_point} had been synced")
    if damage.is_whole:
        raise refuse("the batch there is whole, so its offset or that of one before was changed")
    fd = segment.open_file().fileno()
    following = find_batch(segment.files, fd, position=damage.position + 1, end=segment.size, next_offset=next_offset)
    if following is not None:
        if not _has_lost_page(segment, damage.position, following):
            raise refuse(f"a whole batch follows at byte {following}")
    elif any(each.size for each in later) and not (
        damage.past_end or _has_lost_page(segment, damage.position, segment.size)
    ):
        raise refuse("later segments hold data")


def _has_lost_page(segment: Segment, start: int, end: int) -> bool:
    """Whether a page that overlaps start..end was never written: it reads as zeros up to its end."""
    fd = segment.open_file().fileno()
    boundary = (start // _PAGE + 1) * _PAGE
    while boundary - _PAGE < end:
        last = min(boundary, segment.size)
        first = max(start, last - _ZEROS_MIN)
        tail = segment.files.read_range(fd, position=first, length=last - first)
        if tail and not any(tail):
            return True
        boundary += _PAGE
    return False


def _cut(segment: Segment, damage: Damage, *, end_offset: int) -> None:
    _logger.warning(
        "%s: cutting off %d bytes of a torn tail at byte %d, offset %d: %s",
        segment.path(names.LOG),
        segment.size - damage.position,
        damage.position,
        end_offset,
        damage.reason,
    )
    segment.truncate(offset=end_offset, position=damage.position)
