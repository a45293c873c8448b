"""File and directory names, as Kafka has them."""

from __future__ import annotations

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
ABORTED_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"  # of a log that moves to another log directory
STRAY_DIRECTORY = "-stray"  # of a topic that is not in the metadata

EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_DIGITS = 20


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset a file name begins with, whatever suffix follows."""
    digits = name[:_DIGITS]
    if len(digits) == _DIGITS and digits.isascii() and digits.isdigit() and name[_DIGITS : _DIGITS + 1] == ".":
        return int(digits)
    return None


def directory_name(*, topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_directory(name: str) -> tuple[str, int] | None:
    """`topic-partition` taken apart; a topic may hold dashes itself. None for what is no partition directory."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return topic, int(partition)
