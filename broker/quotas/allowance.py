"""What those who share a quota may use: a bucket that is asked only now and then.

Most requests are far below any quota. So amounts add up first, and are taken from the bucket together once they are
worth a hundredth of a second of its rate: a request then costs an addition and a comparison, and no look at the clock.
While more was taken than there was, every request asks, so that each is told how long to wait.
"""

from __future__ import annotations

from typing import Final

from tidemark.environment import monotonic
from tidemark.pacing import TokenBucket

SETTLED_SECONDS: Final = 0.01  # of the rate: what is used before the bucket is asked
NO_LIMIT: Final = float("inf")


class Allowance(TokenBucket):
    """`unsettled` may be added to, and compared with `settled_from`, where a call would be too slow."""

    __slots__ = ("_wait_seconds_max", "settled_from", "unsettled")

    def __init__(
        self, rate: float, *, burst_seconds: float, first_seconds: float, wait_seconds_max: float = NO_LIMIT
    ) -> None:
        """`wait_seconds_max`: nobody is told to wait longer at a time."""
        super().__init__(rate, burst_seconds=burst_seconds, first_seconds=first_seconds)
        self._wait_seconds_max = wait_seconds_max
        self.unsettled = 0.0

    def set_rate(self, rate: float, *, burst_seconds: float = 1.0) -> None:
        super().set_rate(rate, burst_seconds=burst_seconds)
        self.settled_from = 0.0  # ask at once: perhaps there is a debt

    def use(self, amount: float) -> float:
        """Returns for how many seconds to wait now; most often 0."""
        self.unsettled = unsettled = self.unsettled + amount
        return self.settle() if unsettled >= self.settled_from else 0.0

    def settle(self) -> float:
        return min(self.wait(monotonic()), self._wait_seconds_max)

    def wait(self, now: float) -> float:
        """For how many seconds to wait before anything more is used, with all that was used so far."""
        seconds = self.take(self.unsettled, now)
        self.unsettled = 0.0
        self.settled_from = 0.0 if seconds else self.rate * SETTLED_SECONDS
        return seconds
