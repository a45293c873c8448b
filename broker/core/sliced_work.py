"""Long work on the event loop: one slice of it in each turn of the loop.

A job is a generator that yields where it may be interrupted. Most jobs are done within their first slice, and cost no
more than a look at the clock; the rest of a longer one waits for its turn among all that there are. So no other client
waits for more than a slice, however many clients ask for long work at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

from tidemark.broker.core.deferred import Deferred
from tidemark.environment import monotonic

log = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.005
BACKGROUND_SLICE_SECONDS: Final = 0.00015  # of what is done behind Kafka's clients: HTTP and scrapes
FIRST_SECONDS_IF_BUSY: Final = 0.0005  # of a job that is new while others wait: the turn has its slice already

A = TypeVar("A")
T = TypeVar("T")
Job = Generator[None, None, T]
Wanted = Callable[[], bool]


class Interrupted:
    """The type of `INTERRUPTED`."""


INTERRUPTED: Final = Interrupted()  # a job that is not done yet


def _always() -> bool:
    return True


def in_slices(make: Callable[[A], T], items: Iterable[A]) -> Job[list[T]]:
    """`[make(item) for item in items]`, as a job."""
    made = []
    yield  # where there are none, too: a request may name very many topics without a partition
    for item in items:
        made.append(make(item))
        yield
    return made


def gathered(items: Iterable[T]) -> Job[list[T]]:
    """`list(items)`, as a job: for a generator that takes its time between two items."""
    found = []
    for item in items:
        found.append(item)
        yield
    return found


def at_once(job: Job[T]) -> T:
    """What a job returns that is known to be short."""
    try:
        while True:
            next(job)
    except StopIteration as stop:
        done: T = stop.value
        return done


async def finished(job: Job[T]) -> T:
    """What a job returns, for a coroutine: it pauses after each slice. On a broker's own event loop all of these share
    one slice per turn: there may be thousands of them."""
    return await _finished(job, "shared_work", SLICE_SECONDS)


async def finished_in_background(job: Job[T]) -> T:
    """As `finished`, in slices so short that Kafka's clients do not notice them."""
    return await _finished(job, "background_work", BACKGROUND_SLICE_SECONDS)


async def _finished(job: Job[T], name: str, slice_seconds: float) -> T:
    shared: SlicedWork | None = getattr(asyncio.get_running_loop(), name, None)
    return await (finished_apart(job, slice_seconds) if shared is None else shared.finish_in_turn(job))


async def finished_apart(job: Job[T], slice_seconds: float = SLICE_SECONDS) -> T:
    """As `finished`, for what no number of clients may hold up: it does not wait for their turns."""
    until = monotonic() + slice_seconds
    try:
        while True:
            next(job)
            if monotonic() >= until:
                await asyncio.sleep(0)
                until = monotonic() + slice_seconds
    except StopIteration as stop:
        done: T = stop.value
        return done


class SlicedWork:
    def __init__(self, clock: Callable[[], float] = monotonic, *, slice_seconds: float | None = None) -> None:
        self._clock = clock
        self._slice_seconds = SLICE_SECONDS if slice_seconds is None else slice_seconds
        self._jobs: deque[tuple[Job[Any], Wanted, Deferred[Any]]] = deque()
        self._until: float | None = None  # in this turn of the loop, for what is begun by `finish_in_turn`

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs)

    def start(self, job: Job[T]) -> T | Interrupted:
        """What the job returns, if a slice is enough for it; otherwise `add` the rest. Raises what the job raises."""
        return self._advance(job, FIRST_SECONDS_IF_BUSY if self._jobs else self._slice_seconds)

    def add(self, job: Job[T], wanted: Wanted = _always) -> Deferred[T]:
        """From the next turn on. A job that is no longer `wanted` is given up where it stands, and never answered."""
        deferred: Deferred[T] = Deferred()
        self._jobs.append((job, wanted, deferred))
        if len(self._jobs) == 1:
            asyncio.get_running_loop().call_soon(self._turn)
        return deferred

    async def finish(self, job: Job[T]) -> T:
        """What the job returns, for a coroutine, which may as well wait."""
        done = self.start(job)
        if not isinstance(done, Interrupted):
            return done
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.add(job).then(future.set_result, future.set_exception)
        return await future

    async def finish_in_turn(self, job: Job[T]) -> T:
        """As `finish`, but all that is begun so in one turn of the loop has one slice together."""
        now = self._clock()
        until = self._turn_ends_at(now)
        if not self._jobs and now < until:
            done = self._advance(job, until - now)
            if not isinstance(done, Interrupted):
                return done
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.add(job, lambda: not future.cancelled()).then(
            lambda value: None if future.done() else future.set_result(value),
            lambda error: None if future.done() else future.set_exception(error),
        )
        return await future

    def _turn_ends_at(self, now: float) -> float:
        """When this turn of the loop has had its slice, if nothing did before."""
        if self._until is None:
            self._until = now + self._slice_seconds
            asyncio.get_running_loop().call_soon(self._end_turn)
        return self._until

    def _end_turn(self) -> None:
        self._until = None

    def _advance(self, job: Job[T], seconds: float) -> T | Interrupted:
        until = self._clock() + seconds
        try:
            while True:
                next(job)
                if self._clock() >= until:
                    return INTERRUPTED
        except StopIteration as stop:
            done: T = stop.value
            return done

    def _turn(self) -> None:
        """One slice: of one long job, or of several short ones."""
        until = self._clock() + self._slice_seconds
        try:
            for _ in range(len(self._jobs)):
                self._step(until - self._clock())  # at least one step of one job, or none would ever end
                if self._clock() >= until:
                    break
        finally:
            if self._jobs:
                asyncio.get_running_loop().call_soon(self._turn)

    def _step(self, seconds: float) -> bool:
        """Whether the job has ended."""
        job, wanted, deferred = self._jobs[0]
        try:
            if not wanted():
                job.close()
            elif isinstance(done := self._advance(job, seconds), Interrupted):
                self._jobs.append(self._jobs[0])
                return False
            else:
                deferred.resolve(done)
        except Exception as error:
            deferred.fail(error)
        finally:
            self._jobs.popleft()
        return True
