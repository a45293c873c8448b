"""What a shard decided, when records must be written before the decision takes effect.

Decide, append, then apply: an event that needs no record changes the in-memory state at once and returns its answer.
One that needs records returns a CoordinatorResult and has changed nothing yet. The shard host appends the records, all
or none. If that succeeds, the shard's `apply` replays them, exactly as loading does, and runs `then`; if it fails, the
state is unchanged and `refuse` makes the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.core.deferred import Deferred
from tidemark.protocol.errors import ErrorCode

T = TypeVar("T")


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
        self.answer = answer  # sent when the records are committed
        self.then = then  # after the replay
        self.refuse = refuse  # the answer if the records cannot be written
        self.producer = producer  # id and epoch, if the records belong to a producer's transaction


Decision: TypeAlias = T | Deferred[T] | CoordinatorResult
"""What an event returns: its answer, an answer that waits for another event, or one that waits for records."""
