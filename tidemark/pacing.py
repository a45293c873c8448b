"""Pacing: so much per second, with one mechanism for everything that is held to a rate.

`TokenBucket` is the arithmetic, without a clock or a wait of its own: client quotas and replication throttles ask it
directly. `Pace` is a bucket with a clock and a sleep, for work on a thread or in a process (cleaning, scrubbing);
`AsyncPace` the same for a coroutine. bench/micro_pacing.py measures them beside asyncio-throttle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BURST_SECONDS: Final = 1.0
SLEEP_SECONDS_MIN: Final = 0.01  # shorter ones add up first: a sleep costs more than what is paced, perhaps


class TokenBucket:
    """So many tokens per second. What was taken too much is a debt, which is waited for afterwards: so nobody needs to
    know beforehand how much there will be to take, and an item larger than the bucket passes, too."""

    __slots__ = ("_at", "_left", "most", "rate")

    def __init__(
        self, rate: float, *, burst_seconds: float = BURST_SECONDS, first_seconds: float = BURST_SECONDS
    ) -> None:
        """At most the tokens of `burst_seconds` are saved up; those of `first_seconds` are there at first."""
        self.set_rate(rate, burst_seconds=burst_seconds)
        self._left = rate * min(first_seconds, burst_seconds)
        self._at: float | None = None  # when `_left` was right; None: it still is

    def set_rate(self, rate: float, *, burst_seconds: float = BURST_SECONDS) -> None:
        """From now on. A debt stays."""
        assert rate > 0
        assert burst_seconds > 0
        self.rate = rate
        self.most = rate * burst_seconds

    @property
    def idle_from(self) -> float:
        """When it was last asked, or what was taken too much will be paid back: whoever must forget one, forgets the
        one that is idle longest, and no debt."""
        if self._at is None:
            return float("-inf")
        return self._at if self._left >= 0 else self._at - self._left / self.rate

    def take(self, amount: float, now: float) -> float:
        """Returns for how many seconds to wait now, until what was taken too much is paid back; most often 0."""
        left = self._left
        if self._at is not None:
            left += (now - self._at) * self.rate
        if left > self.most:
            left = self.most
        self._left = left = left - amount
        self._at = now
        return 0.0 if left >= 0 else -left / self.rate

    def wait(self, now: float) -> float:
        """For how many seconds to wait before anything more is taken."""
        return self.take(0.0, now)


class Pace:
    """Called with what was just done, it sleeps until that was not too much."""

    def __init__(self, rate: float, *, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._bucket = TokenBucket(rate, first_seconds=0.0)
        self._clock = clock
        self._sleep = sleep

    def __call__(self, amount: float) -> None:
        if (seconds := self._bucket.take(amount, self._clock())) > SLEEP_SECONDS_MIN:
            self._sleep(seconds)


class AsyncPace:
    """As `Pace`, for a coroutine: `await pace(amount)`. Others run meanwhile."""

    def __init__(self, rate: float, *, clock: Callable[[], float]) -> None:
        self._bucket = TokenBucket(rate, first_seconds=0.0)
        self._clock = clock

    def set_rate(self, rate: float) -> None:
        self._bucket.set_rate(rate)

    async def __call__(self, amount: float) -> None:
        if (seconds := self._bucket.take(amount, self._clock())) > SLEEP_SECONDS_MIN:
            import asyncio  # a worker process, which has no coroutines, starts 30 ms sooner without

            await asyncio.sleep(seconds)
