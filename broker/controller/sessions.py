"""Which brokers the controller has heard from, and when. No clock of its own, no sockets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.broker.core.lease import LeaseTimings

NEVER: Final = float("-inf")


@dataclass(slots=True, kw_only=True)
class Session:
    broker_epoch: int
    heard_at: float  # by a heartbeat
    is_heard: bool = False  # by this controller; what the one before it heard is taken on trust
    metadata_offset: int = -1  # how far its image has come
    unfence_after: int = 0  # it must have come so far before it is unfenced
    shutdown_offset: int | None = None  # since it wants to go: where its leaderships were given away


class Sessions:
    def __init__(self, timings: LeaseTimings) -> None:
        self._timings = timings
        self._sessions: dict[int, Session] = {}

    def take_over(self, broker_id: int, *, broker_epoch: int, now: float, unfence_after: int = 0) -> Session:
        """What the controller before this one heard is not known: it may have granted a lease until a moment ago, and
        that must end before others lead. A live broker is heard from long before."""
        heard_at = now - (self._timings.silence - self._timings.lease)
        return self.begin(broker_id, broker_epoch=broker_epoch, now=heard_at, unfence_after=unfence_after)

    def begin(self, broker_id: int, *, broker_epoch: int, now: float, unfence_after: int = 0) -> Session:
        session = Session(broker_epoch=broker_epoch, heard_at=now, unfence_after=max(broker_epoch, unfence_after))
        self._sessions[broker_id] = session
        return session

    def get(self, broker_id: int) -> Session | None:
        return self._sessions.get(broker_id)

    def forget(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: int, now: float) -> bool:
        """It has said so to this controller."""
        session = self._sessions.get(broker_id)
        return session is not None and session.is_heard and now < session.heard_at + self._timings.session

    def expires_at(self, broker_id: int, word_at: float = NEVER) -> float:
        """When its heartbeats have been missing for a session, or it has not given any sign of life for half of one.
        `word_at`: when it last said something else than a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is None:
            return NEVER
        return min(session.heard_at + self._timings.session, max(session.heard_at, word_at) + self._timings.silence)

    def expired(self, among: Iterable[int], now: float, words: Mapping[int, float]) -> Iterator[int]:
        return (each for each in among if now >= self.expires_at(each, words.get(each, NEVER)))

    def next_expiry(self, among: Iterable[int], words: Mapping[int, float]) -> float | None:
        return min((self.expires_at(each, words.get(each, NEVER)) for each in among), default=None)

    def lowest_offset(self, among: Iterable[int]) -> int | None:
        """How far the slowest of these has come; -1 for one that has not said yet."""
        return min((self._sessions[each].metadata_offset for each in among if each in self._sessions), default=None)
