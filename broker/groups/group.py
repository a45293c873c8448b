"""What every kind of group has in common, as the shard and the handlers see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.groups.records import OffsetCommitValue
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tidemark.broker.core.registry import Call
    from tidemark.broker.groups.shard import GroupShard


class Caller(NamedTuple):
    """The client that sent a request."""

    client_id: str
    host: str
    version: int  # of the request
    may_describe: Callable[[str], bool] | None = None  # a topic, by its name; None: there is no authorizer


def caller_of(call: Call, may_describe: Callable[[str], bool] | None = None) -> Caller:
    """Hosts are written as Kafka, and Java, write them."""
    return Caller(call.client_id or "", f"/{call.connection.host}", call.version, may_describe)


class Group(ABC):
    """Methods that take a request of the classic protocol are here because a consumer group serves classic members,
    too, while it is being upgraded. Each returns its response, a Deferred of it, or a CoordinatorResult."""

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
        """Without members it may be deleted, and any client may commit for it."""

    # -- the classic protocol ----------------------------------------------

    @abstractmethod
    def join(
        self, shard: GroupShard, request: JoinGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[JoinGroupResponse]: ...

    @abstractmethod
    def sync(
        self, shard: GroupShard, request: SyncGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[SyncGroupResponse]: ...

    @abstractmethod
    def heartbeat(self, shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> ErrorCode | CoordinatorResult:
        """An ErrorCode, or what the others return. The hottest path of a coordinator: no message object is made."""

    @abstractmethod
    def leave(
        self, shard: GroupShard, request: LeaveGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[LeaveGroupResponse]: ...

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
        """Whether this member may commit; if so, its session is renewed. In a transaction the member id may be
        missing."""

    def holds_since(self, *, member_id: str, epoch: int, topic_id: bytes, partition: int) -> bool:
        """Whether the member has owned a partition at least since this member epoch."""
        return False

    @abstractmethod
    def check_fetch(self, *, member_id: str | None, epoch: int) -> ErrorCode: ...

    @abstractmethod
    def check_offset_delete(self) -> ErrorCode: ...

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool: ...

    def subscribed_among(self, topics: Iterable[str]) -> Set[str]:
        """Those of these topics that it subscribes to."""
        return {topic for topic in topics if self.subscribes_to(topic)}

    @abstractmethod
    def expiry_base_ms(self, value: OffsetCommitValue) -> int | None:
        """The start of an offset's retention, or None if it cannot expire now."""

    # -- the end -----------------------------------------------------------

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete everything but the offsets."""

    @abstractmethod
    def loaded(self, shard: GroupShard, now_ms: int) -> CoordinatorResult | None:
        """Everything is replayed and the shard is active: start sessions. May return a CoordinatorResult."""

    def dropped(self, shard: GroupShard) -> None:  # noqa: B027 -- most groups have no waiting requests
        """The shard moves to another node: answer the requests that wait."""
