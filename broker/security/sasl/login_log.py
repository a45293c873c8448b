"""A line per login, successful or not: who, by what, from where, why not. A flood of them does not flood the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger("tidemark.security.logins")

BURST_MAX: Final = 20
LINES_PER_SECOND: Final = 2.0
NAME_CHARS_MAX: Final = 100
REASON_CHARS_MAX: Final = 300


class LoginLog:
    """A bucket for each kind of line, so that a guesser's failures do not hide that somebody got in."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._refused = _Bucket(clock)
        self._accepted = _Bucket(clock)
        self.accepted_count = self.refused_count = 0

    def accepted(self, *, principal: str, mechanism: str, peer: str, again: bool) -> None:
        self.accepted_count += 1
        if (others := self._accepted.take()) is not None:
            log.info(
                "%s logged in%s by %s from %s%s", _name(principal), " again" if again else "", mechanism, peer, others
            )

    def refused(self, *, user: str, mechanism: str, peer: str, reason: str) -> None:
        self.refused_count += 1
        if (others := self._refused.take()) is not None:
            who = f"user {_name(user)}" if user else "an unnamed user"
            by = _plain(mechanism) or "no mechanism"
            log.warning("refused %s by %s from %s: %s%s", who, by, peer, _plain(reason), others)


class _Bucket:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens = float(BURST_MAX)
        self._filled_at = clock()
        self._unlogged = 0

    def take(self) -> str | None:
        """None if a line may not be written now; else what is to be said about those that were not."""
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._filled_at) * LINES_PER_SECOND, BURST_MAX)
        self._filled_at = now
        if self._tokens < 1:
            self._unlogged += 1
            return None
        self._tokens -= 1
        others, self._unlogged = self._unlogged, 0
        return f" ({others} more were not logged)" if others else ""


def _name(text: str) -> str:
    """A client chooses it: no line ends, and no length without a limit."""
    return repr(text[:NAME_CHARS_MAX])


def _plain(text: str) -> str:
    """A client may have chosen a part of it: the name of a mechanism, say, or what a token holds."""
    shown = text[:REASON_CHARS_MAX]
    return shown if shown.isprintable() else repr(shown)
