"""What a handler answers, whichever way it does so: changed, or looked at, when it is there."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from types import GeneratorType
from typing import Any, TypeVar

from tidemark.broker.core.deferred import Answer, Deferred, awaited, mapped
from tidemark.broker.core.sliced_work import Job

T = TypeVar("T")


def when_answered(answer: Answer[T], change: Callable[[T], T]) -> Answer[T]:
    """The answer after `change`, at once or when it is there."""
    if type(answer) is GeneratorType:
        return _in_slices(answer, change)
    if isinstance(answer, Deferred):
        changed = mapped(answer, change)
        assert isinstance(changed, Deferred)
        changed.abandon = answer.abandon
        return changed
    if inspect.isawaitable(answer):
        return _later(answer, change)
    return change(answer)  # type: ignore[arg-type]


def _in_slices(answer: Generator[None, None, Any], change: Callable[[T], T]) -> Job[Any]:
    return when_answered((yield from answer), change)


async def _later(answer: Awaitable[Any], change: Callable[[T], T]) -> T:
    response = await answer
    return change(await awaited(response) if isinstance(response, Deferred) else response)
