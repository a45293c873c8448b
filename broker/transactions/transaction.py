"""The state of one transactional id: an immutable value, stored as one record."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 32767
NEVER: Final = -1

TopicPartition = tuple[str, int]


class TransactionState(Enum):
    """Kafka's numbers (in the log) and names (in responses)."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.label = label

    __hash__ = object.__hash__  # states are looked up in sets all the time, and an Enum hashes its name


STATES: Final = {state.number: state for state in TransactionState}
STATE_NAMES: Final = {state.label: state for state in TransactionState}
PREPARED: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
COMPLETED: Final = frozenset((TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
AT_REST: Final = COMPLETED | {TransactionState.EMPTY}

# The transaction version of a client (the feature transaction.version).
CLASSIC: Final = 0
EPOCH_PER_TRANSACTION: Final = 2  # KIP-890: every end of a transaction is a new epoch


class Transaction(NamedTuple):
    """A named tuple rather than a dataclass, because `_replace` is faster."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # replaces producer_id when this transaction is complete
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH  # not stored, as in Kafka
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NEVER
    update_ms: int = NEVER
    client_version: int = CLASSIC

    @property
    def is_exhausted(self) -> bool:
        """The last epoch is reserved for fencing this producer."""
        return self.producer_epoch >= EPOCH_MAX - 1
