"""What each producer wrote last: the memory behind idempotence and transactions.

The rules are Kafka's. A batch is refused only on evidence: a producer that is not known here (never seen, expired, or
its records deleted) may continue at any sequence, because its earlier batches may simply have been forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidemark.protocol.records import BatchHeader
from tidemark.storage.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
)
from tidemark.storage.snapshots import SnapshotEntry

BATCHES_REMEMBERED = 5  # a client may have that many requests in flight (max.in.flight.requests.per.connection)
NO_SEQUENCE = -1
NO_OFFSET = -1
# Ids from here on are made of a key that stands for one batch (an HTTP client's Idempotency-Key); controllers hand out
# those below. Anybody can make up any number of keys, so a partition remembers the last ones only.
KEYED_PRODUCER_ID_MIN = 1 << 62
KEYED_PRODUCERS_MAX = 5_000
# Nor does anything keep a client from making up ids below: a batch of 69 bytes would be 350 bytes of memory for a day
# (producer.id.expiration.ms), and an entry in each snapshot. So those that wrote longest ago are forgotten, as if
# expired; their next batch is accepted, whatever its sequence.
PRODUCERS_MAX = 30_000
PRODUCERS_LEFT = 25_000
UNREPLICATED_MAX = 1_000  # transactions that have ended, and may not be committed yet
_SEQUENCE_MASK = 0x7FFFFFFF  # after 2^31-1 comes 0


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerState:
    """One producer on one partition. `batches` holds its last five, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp",
        "last_written",
        "next_sequence",
        "producer_id",
    )

    def __init__(self, producer_id: int, *, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[RememberedBatch] = []
        self.next_sequence = 0
        self.last_timestamp = -1
        self.last_written = NO_OFFSET  # the last offset of its last batch or marker
        self.coordinator_epoch = -1
        self.current_txn_first_offset = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find(self, *, first_sequence: int, last_sequence: int) -> RememberedBatch | None:
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []
            self.next_sequence = 0

    def remember(self, batch: RememberedBatch) -> None:
        batches = self.batches
        if len(batches) == BATCHES_REMEMBERED:
            del batches[0]
        batches.append(batch)
        self.next_sequence = (batch.last_sequence + 1) & _SEQUENCE_MASK
        self.last_timestamp = batch.timestamp
        self.last_written = batch.last_offset

    def copy(self) -> ProducerState:
        copied = ProducerState(self.producer_id, epoch=self.epoch)
        copied.batches = self.batches.copy()
        copied.next_sequence = self.next_sequence
        copied.last_timestamp = self.last_timestamp
        copied.last_written = self.last_written
        copied.coordinator_epoch = self.coordinator_epoch
        copied.current_txn_first_offset = self.current_txn_first_offset
        return copied

    def to_snapshot(self) -> SnapshotEntry:
        last = self.batches[-1] if self.batches else RememberedBatch(0, NO_SEQUENCE, 0, NO_OFFSET, -1)
        delta = last.last_offset - last.first_offset if self.batches else 0
        return (
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    @classmethod
    def from_snapshot(cls, entry: SnapshotEntry) -> ProducerState:
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset = entry
        state = cls(producer_id, epoch=epoch)
        if offset >= 0:
            first_sequence = (sequence - delta) & _SEQUENCE_MASK
            state.remember(RememberedBatch(first_sequence, sequence, offset - delta, offset, timestamp))
        state.last_timestamp = timestamp
        state.coordinator_epoch = coordinator_epoch
        state.current_txn_first_offset = first_offset
        return state


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # the marker's
    aborted: bool
    last_stable_offset: int


class Producers:
    """All producers of one partition, and the transactions they hold open."""

    __slots__ = ("_keyed", "_limit", "_ongoing", "_states", "_unreplicated")

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}
        self._limit = PRODUCERS_MAX  # more, while so many transactions are open
        self._keyed: dict[int, None] = {}  # ids that are made of keys, oldest first
        # Keyed by first offset. Transactions begin in offset order, so the dictionary's order is theirs.
        self._ongoing: dict[int, int] = {}
        # Decided, but the marker may not be replicated yet: (first offset, marker's offset), by the marker's offset.
        self._unreplicated: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._states)

    def states(self) -> list[ProducerState]:
        return list(self._states.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """Whether a client's batch may be appended; the remembered batch if it is a repetition of one."""
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        if header.producer_epoch == state.epoch and header.base_sequence == state.next_sequence and state.batches:
            return self._check_transaction(state, header)
        return self._check_unexpected(state, header)

    def _check_unexpected(self, state: ProducerState, header: BatchHeader) -> RememberedBatch | None:
        """A batch that does not plainly follow the last one: a repetition, a new epoch, or an error."""
        first, last = header.base_sequence, (header.base_sequence + header.last_offset_delta) & _SEQUENCE_MASK
        epoch = header.producer_epoch
        name = f"producer {state.producer_id}"
        if epoch < state.epoch:
            raise StaleProducerEpoch(f"{name} sent epoch {epoch}, but its epoch is {state.epoch}")
        if first == NO_SEQUENCE:  # a coordinator's own batch: it carries an epoch to be fenced by, but no sequence
            return self._check_transaction(state, header)
        if epoch == state.epoch and (repeated := state.find(first_sequence=first, last_sequence=last)):
            return repeated
        if epoch > state.epoch and first != 0:
            raise OutOfOrderSequence(f"{name} began epoch {epoch} at sequence {first}; a new epoch begins at 0")
        # A known producer with no batch in this epoch (a marker opened it) must start at 0, which is next_sequence.
        if epoch == state.epoch and first != state.next_sequence:
            raise OutOfOrderSequence(f"{name} sent sequence {first}, expected {state.next_sequence}")
        return self._check_transaction(state, header)

    @staticmethod
    def _check_transaction(state: ProducerState, header: BatchHeader) -> None:
        if state.current_txn_first_offset >= 0 and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {state.producer_id} sent a plain batch into its open transaction "
                f"(since offset {state.current_txn_first_offset})"
            )

    def appended(self, header: BatchHeader, *, first_offset: int, last_offset: int) -> None:
        """Takes note of a data batch that is in the log now."""
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(header.producer_id, epoch=header.producer_epoch)
            if header.producer_id >= KEYED_PRODUCER_ID_MIN:
                self._note_key(header.producer_id)
            if len(self._states) > self._limit:
                self._forget_oldest(header.producer_id)
        elif header.producer_epoch != state.epoch:
            state.enter_epoch(header.producer_epoch)
        sequence = header.base_sequence
        last_sequence = (sequence + header.last_offset_delta) & _SEQUENCE_MASK if sequence >= 0 else NO_SEQUENCE
        state.remember(RememberedBatch(sequence, last_sequence, first_offset, last_offset, header.max_timestamp))
        if header.is_transactional and state.current_txn_first_offset < 0:
            state.current_txn_first_offset = first_offset
            self._ongoing[first_offset] = header.producer_id

    def _note_key(self, producer_id: int) -> None:
        self._keyed[producer_id] = None
        while len(self._keyed) > KEYED_PRODUCERS_MAX:
            oldest = next(iter(self._keyed))
            del self._keyed[oldest]
            self._states.pop(oldest, None)

    def _forget_oldest(self, newest: int) -> None:
        """Many at once, so that it is not done for every new one. Open transactions stay."""
        idle = [
            state
            for state in self._states.values()
            if state.current_txn_first_offset < 0 and state.producer_id != newest
        ]
        idle.sort(key=_last_written)
        self._forget(state.producer_id for state in idle[: len(self._states) - PRODUCERS_LEFT])
        self._limit = max(PRODUCERS_MAX, len(self._states) + PRODUCERS_MAX - PRODUCERS_LEFT)

    def _forget(self, producer_ids: Iterable[int]) -> None:
        for producer_id in producer_ids:
            del self._states[producer_id]
            self._keyed.pop(producer_id, None)

    def check_marker(self, header: BatchHeader, *, coordinator_epoch: int) -> None:
        """Whether a coordinator's marker may be appended (replicated markers are not asked)."""
        state = self._states.get(header.producer_id)
        if state is None:
            return
        name = f"producer {header.producer_id}"
        if header.producer_epoch < state.epoch:
            raise StaleProducerEpoch(f"{name}: marker of epoch {header.producer_epoch}, but its epoch is {state.epoch}")
        if coordinator_epoch < state.coordinator_epoch:
            raise StaleCoordinatorEpoch(
                f"{name}: marker of coordinator epoch {coordinator_epoch}, but {state.coordinator_epoch} has written"
            )

    def ended(
        self, header: BatchHeader, *, offset: int, commit: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """Takes note of a transaction marker. None when the producer had written nothing in its transaction."""
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(header.producer_id, epoch=header.producer_epoch)
            if len(self._states) > self._limit:
                self._forget_oldest(header.producer_id)
        state.enter_epoch(header.producer_epoch)
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = header.max_timestamp
        state.last_written = offset
        first_offset, state.current_txn_first_offset = state.current_txn_first_offset, NO_OFFSET
        if first_offset < 0:
            return None
        self._ongoing.pop(first_offset, None)
        self._unreplicated.append((first_offset, offset))
        if len(self._unreplicated) > UNREPLICATED_MAX:
            self._unreplicated = _joined(self._unreplicated)
        return CompletedTransaction(
            producer_id=header.producer_id,
            first_offset=first_offset,
            last_offset=offset,
            aborted=not commit,
            last_stable_offset=next(iter(self._ongoing), offset + 1),
        )

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction is decided, and the decision is committed too."""
        if not self._ongoing and not self._unreplicated:
            return high_watermark
        self.forget_replicated(high_watermark)
        first_undecided = next(iter(self._ongoing), high_watermark)
        return min(high_watermark, first_undecided, *(first for first, _ in self._unreplicated))

    def forget_replicated(self, high_watermark: int) -> None:
        """Markers below the high watermark are committed: they no longer hold back the last stable offset."""
        if self._unreplicated:
            self._unreplicated = [entry for entry in self._unreplicated if entry[1] >= high_watermark]

    @property
    def unreplicated_count(self) -> int:
        return len(self._unreplicated)

    def first_undecided(self) -> int | None:
        return next(iter(self._ongoing), None)

    def expire(self, *, now_ms: int, idle_ms: int) -> None:
        """Forgets producers that wrote nothing for `idle_ms`; one with an open transaction stays."""
        expired = [
            state.producer_id
            for state in self._states.values()
            if state.current_txn_first_offset < 0 and now_ms - state.last_timestamp >= idle_ms
        ]
        self._forget(expired)

    def clear(self) -> None:
        self._states.clear()
        self._keyed.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def copy(self) -> Producers:
        copied = Producers()
        copied.restore(self)
        return copied

    def restore(self, saved: Producers) -> None:
        """Becomes what `saved` is, and shares nothing with it."""
        self._states = {producer_id: state.copy() for producer_id, state in saved._states.items()}
        self._keyed = saved._keyed.copy()
        self._ongoing = saved._ongoing.copy()
        self._unreplicated = saved._unreplicated.copy()

    def to_snapshot(self) -> list[SnapshotEntry]:
        return [state.to_snapshot() for state in self._states.values()]

    def load(self, entries: Iterable[SnapshotEntry]) -> None:
        self.clear()
        for state in map(ProducerState.from_snapshot, entries):
            self._states[state.producer_id] = state
            if state.producer_id >= KEYED_PRODUCER_ID_MIN:
                self._keyed[state.producer_id] = None
        opened = (state for state in self._states.values() if state.current_txn_first_offset >= 0)
        self._ongoing = {s.current_txn_first_offset: s.producer_id for s in sorted(opened, key=_first_offset)}


def _joined(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half as many: two neighbours become one transaction, which ends when the later one does. What holds back the last
    stable offset then holds it back a little longer, and never less."""
    pairs = zip(entries[::2], entries[1::2], strict=False)
    joined = [(min(first, second), marker) for (first, _), (second, marker) in pairs]
    return joined + entries[len(entries) - len(entries) % 2 :]


def _first_offset(state: ProducerState) -> int:
    return state.current_txn_first_offset


def _last_written(state: ProducerState) -> int:
    return state.last_written
