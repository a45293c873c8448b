"""Replication with the other brokers, put together: fetching from leaders, in-sync sets, and what a lost lease ends."""

from __future__ import annotations

import asyncio
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.peers import Peers
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.follower_sessions import FollowerSessions
from tidemark.broker.replication.isr_upkeep import IsrUpkeep
from tidemark.broker.replication.leader_fetchers import LeaderFetchers
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.replicator import Led
from tidemark.broker.replication.role_assignment import RoleAssignment
from tidemark.protocol.errors import ErrorCode

LEASE_CHECK_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 1.0  # before what could not be opened is tried again


class PeerReplication:
    def __init__(self, table: ReplicaTable, roles: RoleAssignment, sessions: FollowerSessions, peers: Peers) -> None:
        self._table = table
        self._roles = roles
        self._fetchers = LeaderFetchers(table, roles, peers)
        self._isr = IsrUpkeep(table, sessions, peers, superseded=roles.superseded)
        self._loop = asyncio.get_running_loop()
        self._has_lapsed = False  # the lease, when it was last looked at
        self._lease_timer = self._loop.call_later(LEASE_CHECK_SECONDS, self._check_lease)
        self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry)

    def follow(self, followed: Followed) -> None:
        self._fetchers.follow(followed)

    def unfollow(self, followed: Followed) -> None:
        self._fetchers.unfollow(followed)

    def consider_others(self, partition: Led) -> None:
        self._isr.consider_others(partition)

    def consider_expansion(self, partition: Partition, node_id: int) -> None:
        self._isr.consider_expansion(partition, node_id)

    def check_lag_soon(self, partition: Partition) -> None:
        self._isr.check_lag_soon(partition)

    def step_aside(self, partition: Led, error: Exception) -> None:
        self._isr.step_aside(partition, error)

    def brokers_changed(self) -> None:
        self._isr.brokers_changed()

    async def stop(self) -> None:
        self._lease_timer.cancel()
        self._retry_timer.cancel()
        await self._isr.stop()
        await self._fetchers.stop()

    def _check_lease(self) -> None:
        """A node that is cut off cannot say how a wait ended: its clients had better ask the present leader. But a node
        that stood still for a moment has a lease again with its next heartbeat, and what it wrote is soon committed: a
        client that gets another answer writes it a second time."""
        table = self._table
        had_lapsed, self._has_lapsed = self._has_lapsed, not table.is_leased
        if had_lapsed and self._has_lapsed:
            error = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node is cut off: another may lead by now.")
            for partition in table.led():
                partition.fail_acks(error)
                partition.wake_all()
        left = (table.lease_until or 0.0) - lease_clock()
        self._lease_timer = self._loop.call_later(max(left + 0.001, LEASE_CHECK_SECONDS), self._check_lease)

    def _retry(self) -> None:
        self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry)
        self._roles.retries.retry()
