"""What is known of one transactional id: a value that is replaced as a whole, and written down as a whole."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 32767
NEVER: Final = -1

TopicPartition = tuple[str, int]


class TransactionState(Enum):
    """Numbers and names are Kafka's, in its log and in the answers to its tools."""

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

# The rules that a client plays by (the feature transaction.version).
CLASSIC: Final = 0
EPOCH_PER_TRANSACTION: Final = 2  # KIP-890: every end of a transaction is a new epoch


class Transaction(NamedTuple):
    """Not a dataclass: each is replaced by its successor several times, and that is what a named tuple is quick at."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # taken into use when this transaction is complete
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH  # not written down, as Kafka does not
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NEVER
    update_ms: int = NEVER
    client_version: int = CLASSIC

    @property
    def is_exhausted(self) -> bool:
        """The last epoch is kept back, so that there is always one left to fence this producer with."""
        return self.producer_epoch >= EPOCH_MAX - 1
