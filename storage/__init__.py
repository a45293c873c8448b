"""The log on disk. What other packages may use is named here; the rest is the inside."""

from __future__ import annotations

from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.cache import SegmentCache
from tidemark.storage.cleaning.job import CleanedGroup, CleaningFailed, CleaningJob, CleaningStats
from tidemark.storage.cleaning.plan import Dirtiness, is_due, job_for, measure
from tidemark.storage.cleaning.running import Runner, runner_for
from tidemark.storage.cleaning.swap import swap
from tidemark.storage.cold import ColdRead
from tidemark.storage.config import LogConfig
from tidemark.storage.directory import LogDirectory, clean_broker_epoch, locked, read_meta_properties
from tidemark.storage.errors import (
    BatchTooLarge,
    CorruptFile,
    CorruptLog,
    DirectoryLocked,
    DirectoryOffline,
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
    is_disk_failure,
)
from tidemark.storage.files import REAL_FILES, Files, OpenFile
from tidemark.storage.flush import Flush
from tidemark.storage.log import Appended, Log
from tidemark.storage.lookup import Found
from tidemark.storage.pending_append import PendingAppend
from tidemark.storage.producers import ProducerState, RememberedBatch
from tidemark.storage.slices import FileSlice

__all__ = [
    "REAL_FILES",
    "AbortedTransaction",
    "Appended",
    "BatchTooLarge",
    "CleanedGroup",
    "CleaningFailed",
    "CleaningJob",
    "CleaningStats",
    "ColdRead",
    "CorruptFile",
    "CorruptLog",
    "DirectoryLocked",
    "DirectoryOffline",
    "Dirtiness",
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
    "PendingAppend",
    "ProducerState",
    "RememberedBatch",
    "Runner",
    "SegmentCache",
    "StaleCoordinatorEpoch",
    "StaleProducerEpoch",
    "StorageError",
    "TooManyOpenFiles",
    "TopicIdMismatch",
    "WriteFailed",
    "clean_broker_epoch",
    "is_disk_failure",
    "is_due",
    "job_for",
    "locked",
    "measure",
    "read_meta_properties",
    "runner_for",
    "swap",
]
