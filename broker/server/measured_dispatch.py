"""The dispatcher where requests are measured: how long each API takes, in phases, and which errors it answers with.

Not every request is: of an API that is asked for more than a thousand times a second, one in 17 is measured and stands
for the others, which cost no more than an increment; of more than sixteen thousand, one in 61. Where nobody looks (no
HTTP listener), the plain dispatcher is used instead.

- queue: since the event loop knew that it was there, while others were served;
- local: from the frame to the answer, or to where the answer has to wait for something;
- remote: how long it waited (for replicas, for records, for other members, for the disk);
- total: both together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.server.bound_api import BoundApi
from tidemark.broker.server.connection import Connection, Encoded
from tidemark.broker.server.dispatch import Dispatcher
from tidemark.broker.server.error_tally import count_errors
from tidemark.broker.server.timed_answer import ApiTimes, TimedAnswer
from tidemark.environment import current
from tidemark.protocol.apis import apis
from tidemark.protocol.headers import split_selector

# Requests of a busy API that one of them stands for, and of one that is busier still. Primes: clients go round their
# partitions, and it should not be the same one each time.
SAMPLE: Final = 17
SAMPLE_HURRIED: Final = 61
BUSY_SECONDS: Final = 0.001  # from one request to the next
HURRIED_SECONDS: Final = BUSY_SECONDS / 16
BUSY_REQUESTS: Final = 100  # so close together, before not all of them are measured
CLOSE_MAX: Final = 10 * BUSY_REQUESTS  # a pause now and then does not make an API a quiet one


class MeasuredDispatcher(Dispatcher):
    def __init__(self, services: Mapping[str, Callable[[], Any]]) -> None:
        super().__init__(services)
        self.times: dict[int, ApiTimes] = {}  # by API key
        self._now = current().monotonic
        self._measuring: float | None = None  # since when a request is measured
        self._waiting: TimedAnswer | None = None  # its answer, if that is waited for
        # When last, for how many the next one stands, and how many there were in close succession.
        self._measured: dict[BoundApi, tuple[float, int, int]] = {}

    def _measure(self, connection: Connection, frame: bytearray, bound: BoundApi) -> None:
        self._measuring, self._waiting = started, _ = self._now(), None
        queued = self._queued(connection, started)
        try:
            self(connection, frame)  # in which this API is not measured: it is below 0
        finally:
            self._measuring = None
            seconds = self._now() - started
            last, weight, close = self._measured.get(bound, (0.0, 1, 0))
            apart = (started - last) / weight
            close = min(close + 1, CLOSE_MAX) if apart < BUSY_SECONDS else max(close - BUSY_REQUESTS, 0)
            following = 1 if close < BUSY_REQUESTS else SAMPLE if apart > HURRIED_SECONDS else SAMPLE_HURRIED
            bound.unmeasured = following
            self._measured[bound] = started, following, close
        times = self._times_of(frame)
        times.queue.observe(queued, weight)
        self._note(times, self._waiting, seconds, weight)

    def _queued(self, connection: Connection, now: float) -> float:
        turn = connection.server.turn
        turn.is_timed = True
        since = connection.held_at or turn.began
        return max(now - since, 0.0) if since else 0.0

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

    def _new_deferred(self, connection: Connection, bound: BoundApi, correlation_id: int) -> Deferred[Encoded]:
        if self._measuring is None:
            return super()._new_deferred(connection, bound, correlation_id)
        self._waiting = waiting = self._timed_answer(connection, bound, correlation_id)
        waiting.started = self._measuring
        return waiting

    def _unbind(self) -> None:
        super()._unbind()
        self._measured.clear()

    def _bind(self, selector: int, frame: bytearray) -> BoundApi:
        bound = super()._bind(selector, frame)
        if self._bound.get(selector) is not bound:
            return bound  # made for this request only, a version of ApiVersions that is not known: not measured
        bound.unmeasured = 1
        count = count_errors(bound.response)
        if count is not None:
            errors = self._times_of(frame).errors
            bound.tally = lambda response: count(response, errors)
        return bound
