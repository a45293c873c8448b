"""A log of messages that were dropped, which a flood of them cannot flood."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

QUIET_SECONDS: Final = 10.0


class DroppedMessages:
    """The first one is logged at once; then at most one line per `QUIET_SECONDS`, with the number of the others."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float]) -> None:
        self.count = 0
        self._log = log
        self._clock = clock
        self._quiet_until = float("-inf")
        self._unlogged = 0

    def note(self, reason: str) -> None:
        self.count += 1
        now = self._clock()
        if now < self._quiet_until:
            self._unlogged += 1
            return
        others = f" ({self._unlogged} more since the last line)" if self._unlogged else ""
        self._log.warning("dropped a message of the quorum: %s%s", reason, others)
        self._quiet_until, self._unlogged = now + QUIET_SECONDS, 0
