"""What every kind of group has in common, as the shard and the handlers see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.records import OffsetCommitValue
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest
from tidemark.protocol.messages.leave_group import LeaveGroupRequest
from tidemark.protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from tidemark.broker.core.registry import Call
    from tidemark.broker.groups.shard import GroupShard


class Caller(NamedTuple):
    """Who sent a request, as far as groups care."""

    client_id: str
    host: str
    version: int  # of the request


def caller_of(call: Call) -> Caller:
    """Hosts are written as Kafka, and Java, write them."""
    return Caller(call.client_id or "", f"/{call.connection.host}", call.version)


class Group(ABC):
    """Methods that take a request of the classic protocol are here because a consumer group serves classic members,
    too, while it is being upgraded. Each returns its response, a Deferred of it, or an Outcome."""

    kind: ClassVar[str]  # as ListGroups names it
    group_id: str

    @property
    @abstractmethod
    def state_name(self) -> str: ...

    @property
    @abstractmethod
    def protocol_type_name(self) -> str: ...

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """No member: it may be deleted, and anybody may commit for it."""

    # -- the classic protocol ----------------------------------------------

    @abstractmethod
    def join(self, shard: GroupShard, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Any: ...

    @abstractmethod
    def sync(self, shard: GroupShard, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Any: ...

    @abstractmethod
    def heartbeat(self, shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> Any:
        """An ErrorCode, or what the others return. This is the hottest path of all: no message is made here."""

    @abstractmethod
    def leave(self, shard: GroupShard, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Any: ...

    # -- offsets -----------------------------------------------------------

    @abstractmethod
    def check_commit(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        version: int,
        now_ms: int,
        transactional: bool = False,
    ) -> ErrorCode:
        """Whether this member may commit; if so, it is also a sign of life. In a transaction members need not say who
        they are."""

    def holds_since(self, *, member_id: str, epoch: int, topic_id: bytes, partition: int) -> bool:
        """Whether a partition is this member's since that epoch of its own or longer."""
        return False

    @abstractmethod
    def check_fetch(self, *, member_id: str | None, epoch: int) -> ErrorCode: ...

    @abstractmethod
    def check_offset_delete(self) -> ErrorCode: ...

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool: ...

    @abstractmethod
    def expiry_base_ms(self, value: OffsetCommitValue) -> int | None:
        """From when on the retention of an offset counts, or None if it cannot expire now."""

    # -- the end -----------------------------------------------------------

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete everything but the offsets."""

    @abstractmethod
    def loaded(self, shard: GroupShard, now_ms: int) -> Any:
        """Everything is replayed and this node is in charge: start the clocks. May return an Outcome."""

    def dropped(self, shard: GroupShard) -> None:  # noqa: B027 -- most groups have nobody waiting when they go
        """The group was deleted, or the shard goes to another node: whoever waits is told."""
