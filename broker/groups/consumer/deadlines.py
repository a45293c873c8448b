"""The deadlines of members. In memory only: after a failover every member has its full time again.

Setting a deadline costs no timer: the group sets one timer for `next_ms` and checks what is overdue when it fires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidemark.broker.groups.consumer.member import Member


class RevocationDeadline(NamedTuple):
    """By when a member must have revoked partitions and left this epoch."""

    epoch: int
    by_ms: int


class MemberDeadlines:
    __slots__ = ("joins", "revocations", "sessions", "syncs")

    def __init__(self) -> None:
        self.sessions: dict[str, int] = {}  # must heartbeat
        self.revocations: dict[str, RevocationDeadline] = {}  # must confirm that it revoked partitions
        self.joins: dict[str, int] = {}  # classic protocol: must join again
        self.syncs: dict[str, int] = {}  # classic protocol: has joined and must sync

    def drop(self, member_id: str) -> None:
        for clock in (self.sessions, self.revocations, self.joins, self.syncs):
            clock.pop(member_id, None)

    def next_ms(self) -> int | None:
        earliest = [min(clock.values()) for clock in (self.sessions, self.joins, self.syncs) if clock]
        if self.revocations:
            earliest.append(min(move.by_ms for move in self.revocations.values()))
        return min(earliest, default=None)

    def overdue(self, members: Mapping[str, Member], *, now_ms: int) -> dict[str, str]:
        """The members whose time is over, with the reason."""
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
        """Drop past deadlines of members that are gone or that met them."""
        for clock in (self.sessions, self.joins, self.syncs):
            for member_id in [member_id for member_id, at_ms in clock.items() if at_ms <= now_ms]:
                del clock[member_id]
        for member_id in [member_id for member_id, move in self.revocations.items() if move.by_ms <= now_ms]:
            del self.revocations[member_id]
