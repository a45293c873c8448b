"""HTTP clients are held to the same quotas as Kafka's: bytes in, bytes out, and time of the event loop.

KIP-219 tells a client to wait in the answer and then does not listen to its connection. HTTP clients know another way:
who has used too much is refused with 429 and `Retry-After`, before anything is done, until that is paid back; so one
with many connections gains nothing. Streams wait instead. Bytes are those of the records as they are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from math import ceil
from typing import Any, Final, Generic, TypeVar

from tidemark.broker.http.problems import Problem
from tidemark.broker.quotas.allowance import Allowance
from tidemark.broker.quotas.meter import Meter
from tidemark.broker.quotas.service import Quotas
from tidemark.environment import monotonic

T = TypeVar("T")

PAUSE_SECONDS_MAX: Final = 5.0  # of a stream, before it looks again: quotas change


class HttpQuotas:
    """A client is whatever has `principal`, `client_id` and `meter`."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    @property
    def counts_time(self) -> bool:
        return self._quotas.counts_time

    # -- before ------------------------------------------------------------

    def admit(self, client: Any) -> None:
        """Whatever it asks for. Raises Problem."""
        if self._quotas.counts_time:
            meter = self._quotas.meter_of(client)
            self._refuse(meter, _wait(meter.request))

    def admit_produce(self, client: Any) -> None:
        if self._quotas.is_active:
            meter = self._quotas.meter_of(client)
            self._refuse(meter, _wait(meter.produce))

    def admit_fetch(self, client: Any) -> None:
        if self._quotas.is_active:
            meter = self._quotas.meter_of(client)
            self._refuse(meter, _wait(meter.fetch))

    def _refuse(self, meter: Meter, seconds: float) -> None:
        throttle_ms = round(seconds * 1000)
        if not throttle_ms:
            return
        meter.told_to_wait(seconds)
        raise Problem(
            429,
            "THROTTLING_QUOTA_EXCEEDED",
            f"A quota of this client is used up; try again in {throttle_ms} ms.",
            headers=(("Retry-After", str(ceil(seconds))),),
        )

    async def wait_to_fetch(self, client: Any) -> None:
        """For a stream: returns when the client may have more."""
        while self._quotas.is_active and (seconds := _wait((meter := self._quotas.meter_of(client)).fetch)) > 0:
            seconds = min(seconds, PAUSE_SECONDS_MAX)
            meter.told_to_wait(seconds)
            await asyncio.sleep(seconds)

    # -- and after ---------------------------------------------------------

    def produced(self, client: Any, size_bytes: int) -> None:
        if self._quotas.is_active:
            self._quotas.meter_of(client).produced(size_bytes)

    def fetched(self, client: Any, size_bytes: int) -> None:
        if self._quotas.is_active:
            self._quotas.meter_of(client).fetched(size_bytes)

    def fetch_bytes_max(self, client: Any, wanted: int) -> int:
        """As in Kafka: no more at once than the quota allows in all windows."""
        if not self._quotas.is_active or (bucket := self._quotas.meter_of(client).fetch) is None:
            return wanted
        return min(wanted, max(int(bucket.most), 1))

    async def timed(self, client: Any, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; where time has a quota, count what the event loop spends on it."""
        if not self._quotas.counts_time:
            return await work
        meter = self._quotas.meter_of(client)
        return await _Timed(work, meter.worked)


def _wait(allowance: Allowance | None) -> float:
    return 0.0 if allowance is None else allowance.settle()


class _Timed(Generic[T]):
    """An awaitable that tells how long each of its steps took: the time between them is not its own."""

    def __init__(self, work: Coroutine[Any, Any, T], tell: Callable[[float], None]) -> None:
        self._work = work
        self._tell = tell

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step: Callable[[], Any] = lambda: next(steps)  # noqa: E731 -- each step is resumed in its own way
        while True:
            begun = monotonic()
            try:
                awaited = step()
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                self._tell(monotonic() - begun)
            try:
                value = yield awaited
            except BaseException as error:
                step = _thrower(steps, error)
            else:
                step = _sender(steps, value)


def _thrower(steps: Generator[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)


def _sender(steps: Generator[Any, Any, Any], value: Any) -> Callable[[], Any]:
    return lambda: steps.send(value)
