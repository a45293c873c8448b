"""The log on disk. What other packages may use is named here; the rest is the inside."""

from __future__ import annotations

from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.cache import SegmentCache
from tidemark.storage.checking import Finding, Known
from tidemark.storage.cleaning.job import CleanedGroup, CleaningFailed, CleaningJob, CleaningStarved, CleaningStats
from tidemark.storage.cleaning.plan import Dirtiness, is_due, job_for, measure
from tidemark.storage.cleaning.running import Runner, runner_for
from tidemark.storage.cleaning.swap import swap
from tidemark.storage.cold import ColdRead
from tidemark.storage.config import LogConfig
from tidemark.storage.damage_note import write as note_damage
from tidemark.storage.deletion import remove_directory
from tidemark.storage.directory import LogDirectory, clean_broker_epoch, locked, read_meta_properties
from tidemark.storage.errors import (
    BatchTooLarge,
    CorruptFile,
    CorruptLog,
    DirectoryLocked,
    DirectoryOffline,
    InvalidTransactionState,
    LeftBehind,
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
from tidemark.storage.moving import MoveFailed, SegmentCopy, SourceFailed, append_parts, catch_up, open_future
from tidemark.storage.moving import begin as begin_move
from tidemark.storage.pending_append import PendingAppend
from tidemark.storage.producers import KEYED_PRODUCER_ID_MIN, ProducerState, RememberedBatch
from tidemark.storage.scrubbing.job import Scrubbed, ScrubEnded, ScrubJob
from tidemark.storage.scrubbing.mending import (
    Mended,
    can_be_mended,
    mend_beside,
    mending_job,
    prepare,
    put_in_place,
)
from tidemark.storage.scrubbing.plan import segment_job, side_job
from tidemark.storage.scrubbing.running import ScrubRunner, scrub_runner_for
from tidemark.storage.slices import FileSlice

__all__ = [
    "KEYED_PRODUCER_ID_MIN",
    "REAL_FILES",
    "AbortedTransaction",
    "Appended",
    "BatchTooLarge",
    "CleanedGroup",
    "CleaningFailed",
    "CleaningJob",
    "CleaningStarved",
    "CleaningStats",
    "ColdRead",
    "CorruptFile",
    "CorruptLog",
    "DirectoryLocked",
    "DirectoryOffline",
    "Dirtiness",
    "FileSlice",
    "Files",
    "Finding",
    "Flush",
    "Found",
    "InvalidTransactionState",
    "Known",
    "LeftBehind",
    "Log",
    "LogConfig",
    "LogDirectory",
    "LogOffline",
    "Mended",
    "MoveFailed",
    "NonContiguousAppend",
    "OffsetOutOfRange",
    "OpenFile",
    "OutOfOrderSequence",
    "PendingAppend",
    "ProducerState",
    "RememberedBatch",
    "Runner",
    "ScrubEnded",
    "ScrubJob",
    "ScrubRunner",
    "Scrubbed",
    "SegmentCache",
    "SegmentCopy",
    "SourceFailed",
    "StaleCoordinatorEpoch",
    "StaleProducerEpoch",
    "StorageError",
    "TooManyOpenFiles",
    "TopicIdMismatch",
    "WriteFailed",
    "append_parts",
    "begin_move",
    "can_be_mended",
    "catch_up",
    "clean_broker_epoch",
    "is_disk_failure",
    "is_due",
    "job_for",
    "locked",
    "measure",
    "mend_beside",
    "mending_job",
    "note_damage",
    "open_future",
    "prepare",
    "put_in_place",
    "read_meta_properties",
    "remove_directory",
    "runner_for",
    "scrub_runner_for",
    "segment_job",
    "side_job",
    "swap",
]
