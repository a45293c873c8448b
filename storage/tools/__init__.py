"""What `tidemark log` does with the files of a log, without a broker: the command line's only door to storage.

Everything here takes paths and yields plain values; how they are shown is the command line's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidemark.storage.checking import Finding
from tidemark.storage.directory import locked
from tidemark.storage.errors import StorageError
from tidemark.storage.files import REAL_FILES
from tidemark.storage.tools.dump import dump
from tidemark.storage.tools.places import NoLogHere, PartitionPlace, find_partitions, is_compacted, was_stopped_cleanly
from tidemark.storage.tools.repair import Repaired, repair
from tidemark.storage.tools.verify import verify

if TYPE_CHECKING:
    from tidemark.storage.tools.compacting import Compacted as Compacted
    from tidemark.storage.tools.counting import Stats as Stats


def stats(place: PartitionPlace) -> Iterator[int | Stats]:
    from tidemark.storage.tools.counting import stats as count  # loads numpy

    return count(place)


def compact(place: PartitionPlace, **options: Any) -> Compacted:
    from tidemark.storage.tools.compacting import compact as do  # likewise

    return do(place, **options)


__all__ = [
    "REAL_FILES",
    "Finding",
    "NoLogHere",
    "PartitionPlace",
    "Repaired",
    "StorageError",
    "compact",
    "dump",
    "find_partitions",
    "is_compacted",
    "locked",
    "repair",
    "stats",
    "verify",
    "was_stopped_cleanly",
]
