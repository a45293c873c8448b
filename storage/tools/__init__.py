"""What `tidemark log` does with the files of a log, without a broker: the command line's only door to storage.

Everything here takes paths and yields plain values; how they are shown is the command line's business.
"""

from __future__ import annotations

from tidemark.storage.checking import Finding
from tidemark.storage.directory import locked
from tidemark.storage.errors import StorageError
from tidemark.storage.files import REAL_FILES
from tidemark.storage.tools.dump import dump
from tidemark.storage.tools.places import NoLogHere, PartitionPlace, find_partitions
from tidemark.storage.tools.repair import Repaired, repair
from tidemark.storage.tools.verify import verify

__all__ = [
    "REAL_FILES",
    "Finding",
    "NoLogHere",
    "PartitionPlace",
    "Repaired",
    "StorageError",
    "dump",
    "find_partitions",
    "locked",
    "repair",
    "verify",
]
