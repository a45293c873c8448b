"""Until when each member has time. Only in memory: after a restart everybody has its full time again.

Setting a deadline costs no timer: whoever drives the group looks at `next_ms`, and at what is due by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidemark.broker.groups.consumer.member import Member


class RevocationDeadline(NamedTuple):
    """A member has to give something up and leave this epoch."""

    epoch: int
    by_ms: int


class MemberDeadlines:
    __slots__ = ("joins", "revocations", "sessions", "syncs")

    def __init__(self) -> None:
        self.sessions: dict[str, int] = {}  # must be heard of
        self.revocations: dict[str, RevocationDeadline] = {}  # must report what it gave up
        self.joins: dict[str, int] = {}  # speaks the classic protocol, and must join again
        self.syncs: dict[str, int] = {}  # has joined so, and must ask for its assignment

    def drop(self, member_id: str) -> None:
        for clock in (self.sessions, self.revocations, self.joins, self.syncs):
            clock.pop(member_id, None)

    def next_ms(self) -> int | None:
        earliest = [min(clock.values()) for clock in (self.sessions, self.joins, self.syncs) if clock]
        if self.revocations:
            earliest.append(min(move.by_ms for move in self.revocations.values()))
        return min(earliest, default=None)

    def overdue(self, members: Mapping[str, Member], *, now_ms: int) -> dict[str, str]:
        """Who has run out of time, and why."""
        found: dict[str, str] = {}
        for clock, reason in (
            (self.sessions, "its session expired"),
            (self.joins, "it did not join again within its rebalance time-out"),
            (self.syncs, "it did not ask for its assignment within its rebalance time-out"),
        ):
            found.update((member_id, reason) for member_id, at_ms in clock.items() if at_ms <= now_ms)
        for member_id, move in self.revocations.items():
            member = members.get(member_id)
            if move.by_ms <= now_ms and member is not None and member.member_epoch == move.epoch:
                found[member_id] = f"it did not leave epoch {move.epoch} within its rebalance time-out"
        return {member_id: reason for member_id, reason in found.items() if member_id in members}

    def forget_past(self, *, now_ms: int) -> None:
        """Of members that are gone, or that moved on in time."""
        for clock in (self.sessions, self.joins, self.syncs):
            for member_id in [member_id for member_id, at_ms in clock.items() if at_ms <= now_ms]:
                del clock[member_id]
        for member_id in [member_id for member_id, move in self.revocations.items() if move.by_ms <= now_ms]:
            del self.revocations[member_id]
