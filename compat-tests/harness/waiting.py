"""Waiting for what must come true, with a deadline instead of a guess."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_SECONDS = 0.02


def eventually(probe: Callable[[], T], *, seconds_max: float = 15, what: str = "") -> T:
    """The first truthy answer of `probe`; assertion errors count as "not yet"."""
    deadline = time.monotonic() + seconds_max
    while True:
        failure: AssertionError | None = None
        answer: T | None = None
        try:
            answer = probe()
        except AssertionError as error:
            failure = error
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds_max} s: {what or probe}; last answer {answer!r}") from failure
        time.sleep(PAUSE_SECONDS)


async def eventually_async(probe: Callable[[], Awaitable[T]], *, seconds_max: float = 15, what: str = "") -> T:
    """`eventually` for coroutines."""
    deadline = time.monotonic() + seconds_max
    while True:
        if answer := await probe():
            return answer
        assert time.monotonic() < deadline, f"not within {seconds_max} s: {what or probe}; last answer {answer!r}"
        await asyncio.sleep(PAUSE_SECONDS)
