"""What can go wrong in storage, each as its own type. The broker translates them once; none names a wire error code."""

from __future__ import annotations

import errno

# What the kernel says when a device, or the file system on it, is gone or may not be written to any more. A disk that
# is full is none of these, nor is a process without descriptors: both work again when there is room.
_DISK_FAILURES = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EROFS", "ENODEV", "ENXIO", "ESTALE", "EUCLEAN", "ENOMEDIUM", "EREMOTEIO", "ESHUTDOWN")
    if hasattr(errno, name)
)


def is_disk_failure(error: BaseException | None) -> bool:
    """Whether what lies behind an error is a disk that does not work, rather than one that is full."""
    while error is not None:
        if isinstance(error, DirectoryOffline) or (isinstance(error, OSError) and error.errno in _DISK_FAILURES):
            return True
        error = error.__cause__
    return False


class StorageError(Exception):
    """Everything this package raises on purpose."""


class OffsetOutOfRange(StorageError):
    def __init__(self, *, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside the log's range {start}..{end}")
        self.offset = offset
        self.start = start
        self.end = end


class OutOfOrderSequence(StorageError):
    """A producer's batch does not follow its last one: something between them is missing."""


class StaleProducerEpoch(StorageError):
    """The batch carries an older epoch than the producer's current one (Kafka: InvalidProducerEpoch)."""


class StaleCoordinatorEpoch(StorageError):
    """A transaction marker comes from a coordinator that has been replaced."""


class InvalidTransactionState(StorageError):
    """A plain batch from a producer whose transaction is open on this partition."""


class NonContiguousAppend(StorageError):
    """Replicated batches must start at or after the log's end and rise."""


class BatchTooLarge(StorageError):
    """One batch is larger than a whole segment may be."""


class CorruptLog(StorageError):
    """Bytes that were written whole are damaged now. The partition must not be served from this replica."""

    def __init__(self, *, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class CorruptFile(StorageError):
    """A checkpoint or snapshot file cannot be read as what its name says."""


class WriteFailed(StorageError):
    """The disk refused a write (full, broken). Nothing of it remains in the log, which stays usable."""


class TooManyOpenFiles(StorageError, OSError):
    """The process or the system has no file descriptor left. Nothing is damaged; it works again when one is free."""


class LogOffline(StorageError):
    """An earlier I/O failure left the log in doubt; nothing may be read from or written to it until it is reopened."""


class TopicIdMismatch(StorageError):
    """The directory belongs to another topic of the same name."""


class DirectoryOffline(StorageError):
    """A log directory does not work, or is not there."""


class LeftBehind(StorageError):
    """A log was about to go on in another directory, which is not there: what is here may be older than that."""


class DirectoryLocked(StorageError):
    """Another process owns the log directory."""
