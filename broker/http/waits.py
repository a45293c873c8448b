"""How long a request waited: for answers of Kafka's handlers that had to wait themselves (for replicas, records,
members of a group), for other nodes, a leader, or the disk. The rest is its own work, and turns that it waited for."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from tidemark.environment import monotonic


class Waits:
    """`with` one, something is waited for. What is waited for at the same time counts once."""

    __slots__ = ("_since", "_under_way", "_whole_seconds")

    def __init__(self) -> None:
        self._whole_seconds = 0.0
        self._under_way = 0
        self._since = 0.0

    def __enter__(self) -> None:
        if not self._under_way:
            self._since = monotonic()
        self._under_way += 1

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._whole_seconds += monotonic() - self._since

    @property
    def seconds(self) -> float:
        """So far."""
        return self._whole_seconds + (monotonic() - self._since if self._under_way else 0.0)


_NOBODYS: Final = Waits()  # of what no request caused
_current: Final[ContextVar[Waits]] = ContextVar("waits", default=_NOBODYS)


def begin() -> Waits:
    """Of a request, with all that it begins."""
    waits = Waits()
    _current.set(waits)
    return waits


def waiting() -> Waits:
    return _current.get()
