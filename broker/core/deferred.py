"""An answer that is not there yet: completed by the event that ends the wait, without a trip through the event loop.

The code that completes it runs the listener in its own call. A listener that raises is not that code's concern: the
error goes to `failed`, which answers the request that the listener was to answer, or logs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")


log = logging.getLogger(__name__)

Failed = Callable[[Exception], None]


def _log_failure(error: Exception) -> None:
    log.error("what waited for an answer failed", exc_info=error)


class Deferred(Generic[T]):
    """At most one listener, called exactly once; a second completion is ignored."""

    __slots__ = ("_error", "_failed", "_listener", "_value", "abandon", "done")

    def __init__(self) -> None:
        self.done = False
        self.abandon: Callable[[], None] | None = None  # called when the answer is no longer wanted
        self._value: T | None = None
        self._error: Exception | None = None
        self._listener: Callable[[T], None] | None = None
        self._failed: Failed = _log_failure

    def resolve(self, value: T) -> None:
        if self.done:
            return
        self.done = True
        self._value = value
        listener, failed = self._take_listener()
        if listener is not None:
            try:
                listener(value)
            except Exception as error:  # the caller has done nothing wrong
                failed(error)

    def fail(self, error: Exception) -> None:
        """There will be no value."""
        if self.done:
            return
        self.done = True
        self._error = error
        listener, failed = self._take_listener()
        if listener is not None:
            failed(error)

    def _take_listener(self) -> tuple[Callable[[T], None] | None, Failed]:
        """It is called once. Mostly it leads back to whoever has the Deferred: kept any longer it would make a cycle,
        with the whole request in it, which is freed only when the collector comes (see core/garbage.py)."""
        listener, failed = self._listener, self._failed
        self._listener, self._failed = None, _log_failure
        return listener, failed

    def then(self, listener: Callable[[T], None], failed: Failed = _log_failure) -> None:
        """`failed` is called if there is no value, or if the listener raises."""
        if not self.done:
            self._listener, self._failed = listener, failed
            return
        if self._error is not None:
            failed(self._error)
            return
        try:
            listener(self._value)  # type: ignore[arg-type]
        except Exception as error:
            failed(error)


MaybeDeferred: TypeAlias = T | Deferred[T]
# What a handler may return. A generator yields where others may have their turn.
Answer: TypeAlias = T | Deferred[T] | Awaitable[T] | Generator[None, None, MaybeDeferred[T] | Awaitable[T]]


def mapped(value: MaybeDeferred[T], change: Callable[[T], U]) -> MaybeDeferred[U]:
    """What a value becomes, now or when it is there."""
    if not isinstance(value, Deferred):
        return change(value)
    changed: Deferred[U] = Deferred()
    value.then(lambda resolved: changed.resolve(change(resolved)), changed.fail)
    return changed


def chained(value: MaybeDeferred[T], go_on: Callable[[T], MaybeDeferred[U]]) -> MaybeDeferred[U]:
    """What comes of a value, now or when it is there, if that may have to wait, too."""
    if not isinstance(value, Deferred):
        return go_on(value)
    answer: Deferred[U] = Deferred()

    def resolved(found: T) -> None:
        outcome = go_on(found)
        if isinstance(outcome, Deferred):
            outcome.then(answer.resolve, answer.fail)
        else:
            answer.resolve(outcome)

    value.then(resolved, answer.fail)
    return answer


async def awaited(value: MaybeDeferred[T]) -> T:
    """For a coroutine, which may as well wait."""
    if not isinstance(value, Deferred):
        return value
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    value.then(
        lambda resolved: None if future.done() else future.set_result(resolved),
        lambda error: None if future.done() else future.set_exception(error),
    )
    return await future


class CombinedAnswer(Generic[T]):
    """One answer made of parts, some of which are deferred: it leaves when the last part is there."""

    def __init__(self, answer: T) -> None:
        self._answer = answer
        self._deferred: Deferred[T] = Deferred()
        self._missing = 0

    def add(self, part: MaybeDeferred[U], put: Callable[[U], None]) -> None:
        """`put` writes the part into the answer."""
        if not isinstance(part, Deferred):
            put(part)
            return
        self._missing += 1
        part.then(lambda resolved: self._resolved(resolved, put), self._deferred.fail)

    def answer(self) -> MaybeDeferred[T]:
        """When all parts have been added."""
        return self._deferred if self._missing else self._answer

    def _resolved(self, part: U, put: Callable[[U], None]) -> None:
        put(part)
        self._missing -= 1
        if not self._missing:
            self._deferred.resolve(self._answer)
