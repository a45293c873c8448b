"""Producers whose batch was not written a moment ago: the disk did not take it, or this node did not lead just then.

The batches that such a producer has sent meanwhile skip a sequence number. Told so, some clients take their producer
id for lost, begin anew with the next epoch, and send again whatever they have no answer for: to other partitions, too,
where it may have been written (librdkafka issue 4953). Told what the first batch was told, they wait for its retry.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from tidemark.environment import monotonic
from tidemark.protocol.records import BatchHeader

# What was sent before the client heard of the failure has arrived by then, even if client or broker stood still.
IN_FLIGHT_SECONDS_MAX: Final = 5.0
PRODUCERS_MAX: Final = 200  # of one partition
REMEMBERED_MAX: Final = 20_000  # of all partitions of a node: some ten megabytes
NO_PRODUCER: Final = -1


class _Unwritten(NamedTuple):
    why: Exception
    at: float
    sequence: int  # of the first such batch

    @property
    def is_over(self) -> bool:
        return monotonic() >= self.at + IN_FLIGHT_SECONDS_MAX


class UnwrittenBound:
    """What the partitions of one node remember together: a client may name any number of producers and partitions."""

    __slots__ = ("_added",)

    def __init__(self) -> None:
        self._added: deque[tuple[UnwrittenBatches, int, _Unwritten]] = deque()  # the oldest first

    def __len__(self) -> int:
        return len(self._added)

    def add(self, batches: UnwrittenBatches, producer_id: int, unwritten: _Unwritten) -> None:
        added = self._added
        while added and (len(added) >= REMEMBERED_MAX or added[0][2].is_over):
            oldest, whose, what = added.popleft()
            oldest.forget(whose, what)
        added.append((batches, producer_id, unwritten))


class UnwrittenBatches:
    """Of one partition."""

    __slots__ = ("_bound", "_by_producer")

    def __init__(self, bound: UnwrittenBound | None = None) -> None:
        self._bound = UnwrittenBound() if bound is None else bound
        self._by_producer: dict[int, _Unwritten] = {}  # the oldest first

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, header: BatchHeader, why: Exception) -> None:
        producer_id, sequence = header.producer_id, header.base_sequence
        if producer_id == NO_PRODUCER:
            return
        before = self._by_producer.pop(producer_id, None)
        if before is not None and not before.is_over:
            sequence = min(sequence, before.sequence)
        self._make_room()
        unwritten = self._by_producer[producer_id] = _Unwritten(why, monotonic(), sequence)
        self._bound.add(self, producer_id, unwritten)

    def forget(self, producer_id: int, unwritten: _Unwritten) -> None:
        """Unless there has been another since."""
        if self._by_producer.get(producer_id) is unwritten:
            del self._by_producer[producer_id]

    def _make_room(self) -> None:
        by_producer = self._by_producer
        while by_producer:
            oldest = next(iter(by_producer))
            if len(by_producer) < PRODUCERS_MAX and not by_producer[oldest].is_over:
                return
            del by_producer[oldest]

    def written(self, producer_id: int) -> None:
        self._by_producer.pop(producer_id, None)

    def why_skipped(self, header: BatchHeader) -> Exception | None:
        """What the batch was told that should have been written before this one, if there is one."""
        unwritten = self._by_producer.get(header.producer_id)
        if unwritten is None or unwritten.is_over or header.base_sequence <= unwritten.sequence:
            return None
        return unwritten.why
