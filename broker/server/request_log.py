"""Requests that took long, with where the time went; and every request, while `tidemark.requests` is at DEBUG.

- local: the broker worked at it, from the frame to the answer, or to where it had to wait;
- remote: it waited, for replicas, records, other members, the disk, the controller, or its next turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.limited_log import LimitedLog
from tidemark.broker.logs.events import about

if TYPE_CHECKING:
    from tidemark.broker.server.bound_api import BoundApi
    from tidemark.broker.server.connection import Connection

log = logging.getLogger("tidemark.requests")

WAIT_AS_ASKED: Final = frozenset(("Fetch", "JoinGroup", "SyncGroup"))  # for records, or for other members
Told = Callable[[float, float], None]


class RequestLog:
    def __init__(self, *, slow_seconds: float, clock: Callable[[], float]) -> None:
        """`slow_seconds`: infinite, where nobody wants to know."""
        self._slow_seconds = slow_seconds
        self.tells_all = log.isEnabledFor(logging.DEBUG)
        self.least_seconds = 0.0 if self.tells_all else slow_seconds
        self._limited = LimitedLog(log, clock=clock)

    @property
    def is_wanted(self) -> bool:
        return self.least_seconds < float("inf")

    def handled(self, connection: Connection, bound: BoundApi, correlation_id: int, seconds: float) -> None:
        """Answered at once, so that it is all local time."""
        self._tell(connection, bound, correlation_id, seconds, seconds)

    def answered(self, connection: Connection, bound: BoundApi, correlation_id: int) -> Told:
        waits_as_asked = bound.name in WAIT_AS_ASKED

        def told(total: float, local: float) -> None:
            if (local if waits_as_asked and not self.tells_all else total) >= self.least_seconds:
                self._tell(connection, bound, correlation_id, total, local)

        return told

    def _tell(self, connection: Connection, bound: BoundApi, correlation_id: int, total: float, local: float) -> None:
        total_ms, local_ms = round(total * 1000, 3), round(local * 1000, 3)
        extra = about(
            **connection.circumstances,
            api=bound.name,
            api_version=bound.version,
            correlation_id=correlation_id,
            total_ms=total_ms,
            local_ms=local_ms,
            remote_ms=round(total_ms - local_ms, 3),
        )
        if total >= self._slow_seconds and (local >= self._slow_seconds or bound.name not in WAIT_AS_ASKED):
            text = "slow: %s took %.0f ms, %.0f of them here"
            self._limited.warning(text, bound.name, total_ms, local_ms, extra=extra)
        else:
            log.debug("%s took %.3f ms", bound.name, total_ms, extra=extra)
