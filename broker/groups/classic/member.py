"""A member of a classic group: its metadata, its assignment, and the requests of it that wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.timers import Timer
from tidemark.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidemark.protocol.messages.sync_group import SyncGroupResponse

NEVER_MS: Final = 1 << 62
Protocols = Sequence[tuple[str, bytes]]  # by preference: name and what it tells the leader


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
        "timer",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.join: Deferred[JoinGroupResponse] | None = None  # a JoinGroup that waits for the others
        self.sync: Deferred[SyncGroupResponse] | None = None  # a SyncGroup that waits for the leader
        self.is_new = False  # has not seen its first generation: it cannot heartbeat yet
        self.deadline_ms = NEVER_MS  # when its session ends unless we hear from it
        self.timer: Timer | None = None  # fires at the deadline that was set first; later ones are checked then

    @property
    def waits_for_us(self) -> bool:
        """A member that waits for our answer cannot heartbeat, so its session must not expire."""
        return (self.join is not None and not self.is_new) or self.sync is not None

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def metadata(self, protocol: str | None) -> bytes:
        return metadata_of(self.protocols, protocol)

    def vote(self, candidates: Collection[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def described(self, protocol: str | None) -> JoinGroupResponseMember:
        return JoinGroupResponseMember(
            member_id=self.member_id, group_instance_id=self.instance_id, metadata=self.metadata(protocol)
        )


def metadata_of(protocols: Protocols, protocol: str | None) -> bytes:
    for name, metadata in protocols:
        if name == protocol:
            return metadata
    return b""
