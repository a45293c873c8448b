"""What handling an event came to, when something must be written down before it is true.

Decide, append, then apply: an event that needs no record changes the soft state at once and returns its answer. One
that does returns an Outcome and has changed nothing yet. Whoever drives the core appends the records, all or none; if
that worked, `Shard.apply` replays them, exactly as loading does, and then changes the soft state; if it failed,
everything is as it was, and `refuse` makes the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.protocol.errors import ErrorCode


class CoordinatorResult:
    __slots__ = ("answer", "producer", "records", "refuse", "then")

    def __init__(
        self,
        records: Sequence[CoordinatorRecord],
        *,
        answer: Any = None,
        then: Callable[[], None] | None = None,
        refuse: Callable[[ErrorCode], Any],
        producer: tuple[int, int] | None = None,
    ) -> None:
        self.records = records
        self.answer = answer  # leaves when the records are committed
        self.then = then  # after the replay
        self.refuse = refuse  # the answer if the records cannot be written
        self.producer = producer  # id and epoch, of records that count when their transaction commits
