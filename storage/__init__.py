"""The log on disk. What other packages may use is named here; the rest is the inside."""

from __future__ import annotations

from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.cache import SegmentCache
from tidemark.storage.cold import ColdRead
from tidemark.storage.config import LogConfig
from tidemark.storage.directory import LogDirectory, clean_broker_epoch, locked, read_meta_properties
from tidemark.storage.errors import (
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
    TooManyOpenFiles,
    TopicIdMismatch,
    WriteFailed,
)
from tidemark.storage.files import REAL_FILES, Files, OpenFile
from tidemark.storage.flush import Flush
from tidemark.storage.log import Appended, Log
from tidemark.storage.lookup import Found
from tidemark.storage.producers import ProducerState, RememberedBatch
from tidemark.storage.slices import FileSlice

__all__ = [
    "REAL_FILES",
    "AbortedTransaction",
    "Appended",
    "BatchTooLarge",
    "ColdRead",
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
    "TooManyOpenFiles",
    "TopicIdMismatch",
    "WriteFailed",
    "clean_broker_epoch",
    "locked",
    "read_meta_properties",
]
