"""What sessions of consumers and followers share: id and epoch (KIP-227), and the test whether the log of a reader has
parted from ours (KIP-595)."""

from __future__ import annotations

from collections.abc import Container
from random import Random
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import EpochEndOffset, FetchRequest, PartitionData
from tidemark.storage import Log

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EPOCH_MAX: Final = 0x7FFFFFFF

NO_DIVERGENCE: Final = PartitionData().diverging_epoch  # the default itself: encoders leave it out without a look


class SessionEpoch:
    """A session's id, and the epoch that its next request must carry."""

    __slots__ = ("expected", "session_id")

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.expected = 1

    def check(self, request: FetchRequest) -> None:
        if request.session_epoch != self.expected:
            raise Refused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {self.session_id} is at epoch {self.expected}, not {request.session_epoch}",
            )

    def advance(self) -> None:
        self.expected = next_epoch(self.expected)


def next_epoch(epoch: int) -> int:
    return 1 if epoch == EPOCH_MAX else epoch + 1


def unknown_session(session_id: int) -> Refused:
    return Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {session_id}")


def new_session_id(random: Random, taken: Container[int]) -> int:
    while True:
        session_id = random.randrange(1, EPOCH_MAX)
        if session_id not in taken:
            return session_id


def diverging_epoch(log: Log, *, fetch_offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
    """Where the reader's history leaves ours, if it has an end that our log does not have."""
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.epoch_end_offset(last_fetched_epoch)
    if end_offset >= fetch_offset and epoch >= last_fetched_epoch:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)
