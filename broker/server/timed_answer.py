"""Answers that are waited for, where somebody wants to know for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.histogram import Histogram
from tidemark.broker.server.connection import Encoded
from tidemark.environment import current


class ApiTimes:
    """Of all versions of one API. A request that was not measured counts as the next one that is."""

    __slots__ = ("errors", "local", "name", "queue", "remote", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue = Histogram()  # before
        self.local = Histogram()
        self.remote = Histogram()
        self.total = Histogram()
        self.errors: Counter[int] = Counter()  # by Kafka's error code

    def note(self, total: float, local: float, *, weight: int) -> None:
        self.local.observe(local, weight)
        self.remote.observe(max(total - local, 0.0), weight)
        self.total.observe(total, weight)


class TimedAnswer(Deferred[Encoded]):
    """`times` is None until the request is handled as far as it goes at once; `told` hears of total and local time."""

    __slots__ = ("local_seconds", "started", "times", "told", "weight")

    def __init__(self, started: float) -> None:
        super().__init__()
        self.started = started
        self.local_seconds = 0.0
        self.weight = 1
        self.times: ApiTimes | None = None
        self.told: Callable[[float, float], None] | None = None

    def resolve(self, value: Encoded) -> None:
        if not self.done:
            total = current().monotonic() - self.started
            if self.times is not None:
                self.times.note(total, self.local_seconds, weight=self.weight)
            if self.told is not None:
                self.told(total, self.local_seconds)
        super().resolve(value)
