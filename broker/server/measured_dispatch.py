"""The dispatcher where requests are measured: how long each API takes, in phases, and which errors it answers with.

Not every request is: of an API that is asked for more than a thousand times a second, one in sixteen is measured and
stands for the others, which cost no more than an increment. Where nobody looks (no HTTP listener), the plain dispatcher
is used instead.

- local: from the frame to the answer, or to where the answer has to wait for something;
- remote: how long it waited (for replicas, for records, for other members, for the disk);
- total: both together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.histogram import Histogram
from tidemark.broker.server.bound_api import BoundApi
from tidemark.broker.server.connection import Connection, Encoded
from tidemark.broker.server.dispatch import Dispatcher
from tidemark.broker.server.error_tally import count_errors
from tidemark.environment import current
from tidemark.protocol.apis import apis
from tidemark.protocol.headers import split_selector

SAMPLE: Final = 16  # requests of a busy API that one of them stands for
BUSY_SECONDS: Final = 0.001  # from one request to the next
BUSY_REQUESTS: Final = 100  # so close together, before not all of them are measured


class ApiTimes:
    """Of all versions of one API. A request that was not measured counts as the next one that is."""

    __slots__ = ("errors", "local", "name", "remote", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.local = Histogram()
        self.remote = Histogram()
        self.total = Histogram()
        self.errors: Counter[int] = Counter()  # by Kafka's error code

    def note(self, total: float, local: float, *, weight: int) -> None:
        self.local.observe(local, weight)
        self.remote.observe(max(total - local, 0.0), weight)
        self.total.observe(total, weight)


class TimedAnswer(Deferred[Encoded]):
    """`times` is None until the request is handled as far as it goes at once."""

    __slots__ = ("local_seconds", "started", "times", "weight")

    def __init__(self, started: float) -> None:
        super().__init__()
        self.started = started
        self.local_seconds = 0.0
        self.weight = 1
        self.times: ApiTimes | None = None

    def resolve(self, value: Encoded) -> None:
        if not self.done and self.times is not None:
            self.times.note(current().monotonic() - self.started, self.local_seconds, weight=self.weight)
        super().resolve(value)


class MeasuredDispatcher(Dispatcher):
    def __init__(self, services: Mapping[str, Callable[[], Any]]) -> None:
        super().__init__(services)
        self.times: dict[int, ApiTimes] = {}  # by API key
        self._clock = current().monotonic
        self._measuring: float | None = None  # since when a request is measured
        self._waiting: TimedAnswer | None = None  # its answer, if that is waited for
        # When last, for how many the next one stands, and how many there were in close succession.
        self._measured: dict[BoundApi, tuple[float, int, int]] = {}

    def _measure(self, connection: Connection, frame: bytearray, bound: BoundApi) -> None:
        self._measuring, self._waiting = started, _ = self._clock(), None
        try:
            self(connection, frame)  # in which this API is not measured: it is below 0
        finally:
            self._measuring = None
            seconds = self._clock() - started
            last, weight, close = self._measured.get(bound, (0.0, 1, 0))
            close = close + 1 if started - last < BUSY_SECONDS * weight else 0
            bound.unmeasured = following = SAMPLE if close >= BUSY_REQUESTS else 1
            self._measured[bound] = started, following, close
        self._note(self._times_of(frame), self._waiting, seconds, weight)

    def _note(self, times: ApiTimes, waiting: TimedAnswer | None, seconds: float, weight: int) -> None:
        if waiting is None or waiting.done:
            times.note(seconds, seconds, weight=weight)
        else:
            waiting.times, waiting.local_seconds, waiting.weight = times, seconds, weight

    def _times_of(self, frame: bytearray) -> ApiTimes:
        key, _ = split_selector(int.from_bytes(frame[:4], "big"))
        times = self.times.get(key)
        if times is None:
            times = self.times[key] = ApiTimes(apis()[key].name)
        return times

    def _new_deferred(self) -> Deferred[Encoded]:
        if self._measuring is None:
            return super()._new_deferred()
        self._waiting = TimedAnswer(self._measuring)
        return self._waiting

    def _unbind(self) -> None:
        super()._unbind()
        self._measured.clear()

    def _bind(self, selector: int, frame: bytearray) -> BoundApi:
        bound = super()._bind(selector, frame)
        bound.unmeasured = 1
        count = count_errors(bound.response)
        if count is not None:
            errors = self._times_of(frame).errors
            bound.tally = lambda response: count(response, errors)
        return bound
