"""The answer to a client when something is refused, and where other packages' exceptions become Kafka's error codes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark import storage
from tidemark.protocol import records
from tidemark.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


# A text may quote what a client sent, and an answer's strings hold 32,767 bytes at most.
ERROR_TEXT_MAX: Final = 1000


def clipped(text: str) -> str:
    return text if len(text) <= ERROR_TEXT_MAX else text[: ERROR_TEXT_MAX - 1] + "…"


class Refused(Exception):
    def __init__(self, code: ErrorCode, message: str, *, record_indexes: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.record_indexes = record_indexes  # which records of a batch are to blame (KIP-467)
        self.code = code
        self.message = clipped(message)


class CloseConnection(Exception):
    """The request cannot be answered: the server logs why and closes the connection."""


FAULTS: Final[dict[type[Exception], ErrorCode]] = {
    storage.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage.StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    storage.StaleCoordinatorEpoch: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    storage.BatchTooLarge: ErrorCode.RECORD_LIST_TOO_LARGE,
    storage.LogOffline: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.CorruptLog: ErrorCode.KAFKA_STORAGE_ERROR,
    records.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    records.TruncatedBatch: ErrorCode.INVALID_RECORD,
    records.UnknownMagic: ErrorCode.CORRUPT_MESSAGE,
    records.InvalidBatch: ErrorCode.INVALID_RECORD,
}

EXPECTED: Final = (Refused, storage.StorageError, records.InvalidBatch, OSError)


class Fault(NamedTuple):
    code: ErrorCode
    message: str
    record_indexes: Sequence[int] = ()


def fault_of(error: Exception, *, where: str) -> Fault:
    """The code and sentence for one of `EXPECTED`. What is our disk's fault is logged here."""
    if isinstance(error, Refused):
        return Fault(error.code, error.message, error.record_indexes)
    for kind in type(error).__mro__:
        if kind in FAULTS:
            return Fault(FAULTS[kind], clipped(str(error)))
    log.error("%s: %s: %s", where, type(error).__name__, error)
    return Fault(ErrorCode.KAFKA_STORAGE_ERROR, clipped(str(error)))


def check_leader_epoch(quoted: int, current: int) -> None:
    """Leader epochs as clients quote them (KIP-320): older than ours is fenced, newer we have not heard of."""
    if quoted < 0 or quoted == current:
        return
    if quoted < current:
        raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {quoted} is over; the current one is {current}")
    raise Refused(
        ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {quoted} is unknown here; the current one is {current}"
    )
