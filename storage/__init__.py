"""The log on disk. What other packages may use is named here; the rest is the inside."""

from __future__ import annotations

from storage.aborted import AbortedTransaction
from storage.cache import SegmentCache
from storage.config import LogConfig
from storage.directory import LogDirectory, locked
from storage.errors import (
    BatchTooLarge,
    CorruptFile,
    CorruptLog,
    DirectoryLocked,
    InvalidTransactionState,
    LogOffline,
    NonContiguousAppend,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
    StorageError,
    TopicIdMismatch,
    WriteFailed,
)
from storage.files import REAL_FILES, Files, OpenFile
from storage.flush import Flush
from storage.log import Appended, Found, Log
from storage.producers import ProducerState, RememberedBatch
from storage.slices import FileSlice

__all__ = [
    "REAL_FILES",
    "AbortedTransaction",
    "Appended",
    "BatchTooLarge",
    "CorruptFile",
    "CorruptLog",
    "DirectoryLocked",
    "FileSlice",
    "Files",
    "Flush",
    "Found",
    "InvalidTransactionState",
    "Log",
    "LogConfig",
    "LogDirectory",
    "LogOffline",
    "NonContiguousAppend",
    "OffsetOutOfRange",
    "OpenFile",
    "OutOfOrderSequence",
    "ProducerState",
    "RememberedBatch",
    "SegmentCache",
    "StaleCoordinatorEpoch",
    "StaleProducerEpoch",
    "StorageError",
    "TopicIdMismatch",
    "WriteFailed",
    "locked",
]
