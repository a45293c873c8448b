"""Where the logs are in what a user names: a log directory, or a partition's directory in one."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tidemark.storage import checkpoints, names
from tidemark.storage.checking import SegmentFile, segment_files
from tidemark.storage.errors import CorruptFile, StorageError
from tidemark.storage.files import Files, directories_below

INTERNAL_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")
CLEANED = "cleaner-offset-checkpoint"


class NoLogHere(StorageError):
    """What was named holds no log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlace:
    path: str
    topic: str
    partition: int
    segments: list[SegmentFile]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return sum(each.size for each in self.segments)

    @property
    def log_directory(self) -> str:
        return os.path.dirname(self.path)


def find_partitions(files: Files, path: str) -> list[PartitionPlace]:
    """The partition that `path` is, or those that are in it."""
    path = os.path.abspath(path)
    if not files.exists(path):
        raise NoLogHere(f"There is no {path}.")
    if not files.is_directory(path):
        raise NoLogHere(f"{path} is a file, not a directory.")
    if segment_files(files, path):
        return [_place(files, path)]
    inside = (os.path.join(path, name) for name in directories_below(files, path))
    places = [_place(files, each) for each in inside if names.parse_directory(os.path.basename(each)) is not None]
    found = [each for each in places if each.segments]
    if not found:
        raise NoLogHere(f"{path} holds no log: neither segments nor directories named topic-partition.")
    return found


def _place(files: Files, path: str) -> PartitionPlace:
    topic, partition = names.parse_directory(os.path.basename(path)) or (os.path.basename(path), -1)
    return PartitionPlace(path=path, topic=topic, partition=partition, segments=segment_files(files, path))


def is_compacted(files: Files, place: PartitionPlace) -> bool:
    """As far as files tell: a follower may hold compacted batches that it did not compact itself."""
    if place.topic in INTERNAL_COMPACTED:
        return True
    return (place.topic, place.partition) in read_checkpoint(files, place.log_directory, CLEANED)


def read_checkpoint(files: Files, log_directory: str, name: str) -> dict[tuple[str, int], int]:
    try:
        return checkpoints.read_offsets(files, os.path.join(log_directory, name))
    except (CorruptFile, UnicodeDecodeError):
        return {}


def was_stopped_cleanly(files: Files, log_directory: str) -> bool:
    return files.exists(os.path.join(log_directory, checkpoints.CLEAN_SHUTDOWN))
