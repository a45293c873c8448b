"""What a cleaning is told, and what it tells: plain values, as they travel between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.storage.errors import StorageError

NO_DATA = -1


class CleaningFailed(StorageError):
    """The log was not cleaned, and nothing was changed. `is_passing`: it may well be the next time."""

    def __init__(self, reason: str, *, is_passing: bool = False) -> None:
        super().__init__(reason)
        self.is_passing = is_passing

    def __reduce__(self) -> tuple[object, ...]:  # of a failure in another process
        number = self.__cause__.errno if isinstance(self.__cause__, OSError) else None
        return _failed, (str(self), self.is_passing, number)


def _failed(reason: str, is_passing: bool, number: int | None) -> CleaningFailed:
    failed = CleaningFailed(reason, is_passing=is_passing)
    failed.__cause__ = None if number is None else OSError(number, reason)
    return failed


class CleaningStarved(CleaningFailed):
    """The machine is so busy that a process which gives way to all others does not get on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, is_passing=True)

    def __reduce__(self) -> tuple[object, ...]:
        return CleaningStarved, (str(self),)


class LastRecord(NamedTuple):
    """What must stay of a producer, so that its sequence and epoch are known after a restart."""

    last_data_offset: int  # NO_DATA: it wrote nothing in its epoch, which only a marker tells
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    base_offset: int
    size: int
    end_offset: int  # where the next one begins


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    directory: str
    generation: int  # of the log, see `Log.generation`
    groups: tuple[tuple[SourceSegment, ...], ...]  # each becomes one segment
    abort_indexes: tuple[int, ...] = ()  # base offsets of segments that tell of aborts, later ones than these too
    first_dirty_offset: int  # before it, every key is there once
    end_offset: int  # nothing is cleaned from here on
    now_ms: int
    delete_retention_ms: int
    last_records: Mapping[int, LastRecord] = field(default_factory=dict)  # of live producers
    map_bytes: int = 128 << 20
    map_load_factor: float = 0.9
    index_interval_bytes: int = 4096
    hash_seed: int = 0  # secret and other each time: nobody can choose keys with the same hash
    bytes_per_second: float = float("inf")
    is_patient: bool = False  # it may wait until nothing else wants to run; raises CleaningStarved if that is never

    @property
    def segments(self) -> tuple[SourceSegment, ...]:
        return tuple(segment for group in self.groups for segment in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """A segment that is complete on disk under `.cleaned` names, and those that it replaces."""

    generation: int
    base_offset: int
    replaced: tuple[int, ...]  # base offsets
    size: int
    has_aborts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningStats:
    """What a cleaning came to."""

    end_offset: int  # the log is clean up to here
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_read: int = 0
    records_before: int = 0
    records_after: int = 0
    keys: int = 0
    invalid_records: int = 0  # without a key: a compacted topic has no use for them
