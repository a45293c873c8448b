"""An answer that comes later: completed by the event that ends the wait, without a trip through the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """At most one listener, told exactly once; whoever resolves it second is ignored."""

    __slots__ = ("_listener", "_value", "abandon", "done")

    def __init__(self) -> None:
        self.done = False
        self.abandon: Callable[[], None] | None = None  # what to call when nobody wants the answer any more
        self._value: T | None = None
        self._listener: Callable[[T], None] | None = None

    def resolve(self, value: T) -> None:
        if self.done:
            return
        self.done = True
        self._value = value
        if self._listener is not None:
            self._listener(value)

    def then(self, listener: Callable[[T], None]) -> None:
        if self.done:
            listener(self._value)  # type: ignore[arg-type]
        else:
            self._listener = listener


def mapped(value: T | Deferred[T], change: Callable[[T], U]) -> U | Deferred[U]:
    """What a value becomes, now or when it is there."""
    if not isinstance(value, Deferred):
        return change(value)
    changed: Deferred[U] = Deferred()
    value.then(lambda late: changed.resolve(change(late)))
    return changed


async def awaited(value: T | Deferred[T]) -> T:
    """For a coroutine, which may as well wait."""
    if not isinstance(value, Deferred):
        return value
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    value.then(lambda late: None if future.done() else future.set_result(late))
    return await future
