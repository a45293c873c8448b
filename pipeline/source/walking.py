"""Which batches of a run of bytes hold rows of a range of offsets: whole, intact, no control batch, not aborted.

Batches come as a segment file or a fetch answer holds them. Only headers are looked at here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemark.protocol.records import BatchHeader, TruncatedBatch, read_end_transaction, read_header, verify_batch

Placed = tuple[BatchHeader, int]  # a header, and where in the bytes its batch begins
_LENGTH_END = 12  # base offset and length of a batch: with these it can be stepped over
_OFFSETS_END = 61


class AbortedTransactions:
    """What a read_committed reader must not show. It sees every batch, in the order of the log.

    The rule is the Kafka consumer's: a producer's transactional batches are hidden from the first offset of its aborted
    transaction until the abort marker, which is itself in the log.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]] = ()) -> None:
        """`transactions`: pairs of producer id and first offset, all that touch the range that is read."""
        self._to_come = deque(sorted(transactions, key=lambda each: each[1]))
        self._hidden: set[int] = set()

    def hide(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._to_come and self._to_come[0][1] <= header.last_offset:
            self._hidden.add(self._to_come.popleft()[0])
        if not self._hidden or header.producer_id not in self._hidden:
            return False
        if header.is_control:
            marker = read_end_transaction(batch)
            if marker is not None and not marker.commit:
                self._hidden.discard(header.producer_id)
            return True
        return header.is_transactional


@dataclass(slots=True, kw_only=True)
class Walk:
    """How far a look at some bytes has come."""

    batches: list[Placed] = field(default_factory=list)
    next_offset: int  # the first offset not looked at
    consumed: int = 0  # bytes of whole batches; a torn one may follow
    at_end: bool = False  # everything before the end of the range has been seen


def walk(data: memoryview, *, first: int, end: int, aborted: AbortedTransactions) -> Walk:
    """The visible batches that touch offsets first..end-1. Raises InvalidBatch where a whole batch is damaged."""
    seen = Walk(next_offset=first)
    at, size = 0, len(data)
    while at + _OFFSETS_END <= size:
        header = read_header(data, at)
        if header.magic == 2 and header.base_offset >= end:
            seen.at_end = True
            break
        behind = at + _LENGTH_END + header.batch_length
        if header.magic == 2 and header.last_offset < first and at < behind <= size:
            at = behind
            continue
        try:
            verify_batch(data, at)
        except TruncatedBatch:
            break
        batch = data[at:behind]
        hidden = aborted.hide(header, batch)
        if not hidden and not header.is_control:
            seen.batches.append((header, at))
        at = behind
        seen.next_offset = header.next_offset
        if seen.next_offset >= end:
            seen.at_end = True
            break
    seen.consumed = at
    return seen
