"""Which brokers the controller has heard from, and when. No clock of its own, no sockets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Session:
    broker_epoch: int
    heard_at: float
    is_heard: bool = False  # by this controller; what the one before it heard is taken on trust
    metadata_offset: int = -1  # how far its image has come
    unfence_after: int = 0  # it must have come so far before it is unfenced
    shutdown_offset: int | None = None  # since it wants to go: where its leaderships were given away


class Sessions:
    def __init__(self, *, timeout: float) -> None:
        self._timeout = timeout
        self._sessions: dict[int, Session] = {}

    def begin(self, broker_id: int, *, broker_epoch: int, now: float, unfence_after: int = 0) -> Session:
        session = Session(broker_epoch=broker_epoch, heard_at=now, unfence_after=max(broker_epoch, unfence_after))
        self._sessions[broker_id] = session
        return session

    def get(self, broker_id: int) -> Session | None:
        return self._sessions.get(broker_id)

    def forget(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def is_valid(self, broker_id: int, now: float) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and now < session.heard_at + self._timeout

    def is_alive(self, broker_id: int, now: float) -> bool:
        """It has told this very controller so."""
        session = self._sessions.get(broker_id)
        return session is not None and session.is_heard and self.is_valid(broker_id, now)

    def expired(self, among: Iterable[int], now: float) -> Iterator[int]:
        return (broker_id for broker_id in among if not self.is_valid(broker_id, now))

    def next_expiry(self, among: Iterable[int]) -> float | None:
        return min((self._sessions[each].heard_at for each in among if each in self._sessions), default=None)

    def lowest_offset(self, among: Iterable[int]) -> int | None:
        """How far the slowest of these has come; -1 for one that has not said yet."""
        return min((self._sessions[each].metadata_offset for each in among if each in self._sessions), default=None)
