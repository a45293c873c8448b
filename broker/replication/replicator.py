"""Replication with other brokers, as role assignment sees it, and its absence on a node that is alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidemark.broker.replication.followed import Followed
    from tidemark.broker.replication.leadership import Leadership, Proposal
    from tidemark.broker.replication.partition import Partition


class Led(Protocol):
    """A partition that this node leads, or should lead."""

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int
    leadership: Leadership

    def apply_isr(self, *, isr: tuple[int, ...], partition_epoch: int) -> None: ...

    def refused(self, proposal: Proposal) -> None: ...


class UnopenedPartition:
    """One that this node is to lead and cannot, because its log does not open."""

    def __init__(self, *, topic: str, topic_id: bytes, index: int, leadership: Leadership) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leadership.leader_epoch
        self.leadership = leadership

    def apply_isr(self, *, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.leadership.apply_isr(isr=isr, partition_epoch=partition_epoch)

    def refused(self, proposal: Proposal) -> None:
        self.leadership.refused(proposal)


class Replicator(Protocol):
    def follow(self, followed: Followed) -> None:
        """Fetch it from its leader, and from no other broker."""

    def unfollow(self, followed: Followed) -> None: ...

    def consider_others(self, partition: Led) -> None:
        """Replicas that are not in sync: perhaps one of them has caught up."""

    def consider_expansion(self, partition: Partition, node_id: int) -> None: ...

    def check_lag_soon(self, partition: Partition) -> None: ...

    def step_aside(self, partition: Led, error: Exception) -> None: ...

    def brokers_changed(self) -> None: ...

    async def stop(self) -> None: ...


class NoReplicator:
    """There is no other broker."""

    def follow(self, followed: Followed) -> None: ...

    def unfollow(self, followed: Followed) -> None: ...

    def consider_others(self, partition: Led) -> None: ...

    def consider_expansion(self, partition: Partition, node_id: int) -> None: ...

    def check_lag_soon(self, partition: Partition) -> None: ...

    def step_aside(self, partition: Led, error: Exception) -> None: ...

    def brokers_changed(self) -> None: ...

    async def stop(self) -> None: ...
