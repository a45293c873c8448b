"""Producers whose batch was not written a moment ago: the disk did not take it, or this node did not lead just then.

The batches that such a producer has sent meanwhile skip a sequence number. Told so, some clients take their producer
id for lost, begin anew with the next epoch, and send again whatever they have no answer for: to other partitions, too,
where it may have been written (librdkafka issue 4953). Told what the first batch was told, they wait for its retry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidemark.broker.core.errors import Refused
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import BatchHeader

# What was sent before the client heard of the failure has arrived by then, even if client or broker stood still.
IN_FLIGHT_SECONDS_MAX: Final = 5.0
PRODUCERS_MAX: Final = 10_000  # on one node; one that writes to several partitions counts for each
NO_PRODUCER: Final = -1
WHY: Final = "A batch that this producer sent before this one was not written, and comes first."


class _Unwritten(NamedTuple):
    code: ErrorCode  # not the exception: its traceback would keep whole requests
    at: float
    sequence: int  # of the first such batch

    @property
    def is_over(self) -> bool:
        return monotonic() >= self.at + IN_FLIGHT_SECONDS_MAX


class UnwrittenOnNode:
    """What all partitions of a node remember: so many at most, the oldest go first."""

    __slots__ = ("_oldest_first",)

    def __init__(self) -> None:
        self._oldest_first: dict[tuple[UnwrittenBatches, int], _Unwritten] = {}

    def __len__(self) -> int:
        return len(self._oldest_first)

    def add(self, partition: UnwrittenBatches, producer_id: int, unwritten: _Unwritten) -> None:
        self._make_room()
        self._oldest_first[partition, producer_id] = unwritten

    def remove(self, partition: UnwrittenBatches, producer_id: int) -> None:
        del self._oldest_first[partition, producer_id]

    def _make_room(self) -> None:
        while self._oldest_first:
            (partition, producer_id), oldest = next(iter(self._oldest_first.items()))
            if len(self._oldest_first) < PRODUCERS_MAX and not oldest.is_over:
                return
            partition.forget(producer_id)


class UnwrittenBatches:
    """Of one partition."""

    __slots__ = ("_by_producer", "_on_node")

    def __init__(self, on_node: UnwrittenOnNode | None = None) -> None:
        self._on_node = UnwrittenOnNode() if on_node is None else on_node
        self._by_producer: dict[int, _Unwritten] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, header: BatchHeader, code: ErrorCode) -> None:
        producer_id, sequence = header.producer_id, header.base_sequence
        if producer_id == NO_PRODUCER:
            return
        before = self._by_producer.get(producer_id)
        if before is not None:
            self.forget(producer_id)
            if not before.is_over:
                sequence = min(sequence, before.sequence)
        unwritten = _Unwritten(code, monotonic(), sequence)
        self._on_node.add(self, producer_id, unwritten)
        self._by_producer[producer_id] = unwritten

    def forget(self, producer_id: int) -> None:
        """Its batch has been written, or that is long ago, or there is no room."""
        if self._by_producer.pop(producer_id, None) is not None:
            self._on_node.remove(self, producer_id)

    def check(self, header: BatchHeader) -> None:
        """Raises what the batch was told that should have been written before this one, if there is one."""
        unwritten = self._by_producer.get(header.producer_id)
        if unwritten is not None and not unwritten.is_over and header.base_sequence > unwritten.sequence:
            raise Refused(unwritten.code, WHY) from None
