"""Keeping in-sync sets true: replicas that have caught up join, those that lag or are silent leave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from tidemark.broker.core.lease import LeaseTimings
from tidemark.broker.peers import Peers
from tidemark.broker.replication.follower_sessions import FollowerSessions
from tidemark.broker.replication.isr_changes import IsrChanges
from tidemark.broker.replication.leadership import STOPPED_SECONDS_MAX
from tidemark.broker.replication.many_replicas import in_chunks
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.replicator import Led
from tidemark.environment import monotonic

log = logging.getLogger(__name__)

SILENCE_CHECK_SECONDS: Final = 1.0
SILENCE_SECONDS_MIN: Final = 2.5  # several times as long as a follower's fetch waits at most


class IsrUpkeep:
    def __init__(
        self, table: ReplicaTable, sessions: FollowerSessions, peers: Peers, *, superseded: Callable[[Led], None]
    ) -> None:
        """`superseded` is called with a partition of which the controller says that another broker leads it."""
        self._table = table
        self._sessions = sessions
        self._changes = IsrChanges(
            node_id=table.node_id,
            peers=peers,
            broker_epoch=lambda: table.broker_epoch,
            applied=self.consider_others,
            superseded=superseded,
        )
        self._lag_check = PeriodicCheck(seconds=lambda: table.lag_seconds_max() / 2, check=self._shrink_all)
        self._silence_check = PeriodicCheck(seconds=lambda: SILENCE_CHECK_SECONDS, check=self._check_silence)

    async def stop(self) -> None:
        await self._lag_check.stop()
        await self._silence_check.stop()
        await self._changes.stop()

    # -- joining -----------------------------------------------------------

    def consider_expansion(self, partition: Partition, node_id: int) -> None:
        proposal = partition.leadership.propose_expansion(
            node_id, high_watermark=partition.high_watermark, own_epoch=self._table.broker_epoch
        )
        if proposal is not None:
            self._changes.propose(partition, proposal)

    def consider_others(self, partition: Led) -> None:
        """One change is made at a time: a replica that caught up while another change was under way has its turn
        after that."""
        leadership = partition.leadership
        if leadership.is_stepping_aside:  # another change was under way when the disk failed
            self._propose_stepping_aside(partition)
        elif isinstance(partition, Partition) and len(leadership.isr) < len(leadership.replicas):
            for node_id in leadership.followers:
                self.consider_expansion(partition, node_id)

    def brokers_changed(self) -> None:
        """A broker that has gone holds up no high watermark any more. And one that is active again may be in sync
        again: a follower that has everything asks for nothing more, so that no fetch of its own would show it."""
        self._sessions.close_unregistered()
        for partition in self._table.led():
            partition.update_high_watermark()
            partition.update_low_watermark()
            self.consider_others(partition)

    # -- leaving -----------------------------------------------------------

    def step_aside(self, partition: Led, error: Exception) -> None:
        """A leader that cannot write cannot lead; another can."""
        if self._propose_stepping_aside(partition):
            log.error("%s-%d is left to another leader: %s", partition.topic, partition.index, error)

    def _propose_stepping_aside(self, partition: Led) -> bool:
        proposal = partition.leadership.propose_stepping_aside()
        if proposal is not None:
            self._changes.propose(partition, proposal)
        return proposal is not None

    def check_lag_soon(self, partition: Partition) -> None:
        """A follower has stopped fetching it: if it does not come back soon, it is not in sync."""
        asyncio.get_running_loop().call_later(STOPPED_SECONDS_MAX + 0.1, self._check_lag, partition)

    def _check_lag(self, partition: Partition) -> None:
        if self._table.is_leased and not partition.is_over:
            self._shrink(partition, monotonic())

    async def _shrink_all(self, now: float) -> None:
        await in_chunks(self._table.led(), partial(self._shrink_some, now))
        if self._table.is_leased:
            self.brokers_changed()

    def _shrink_some(self, now: float, partitions: Iterable[Partition]) -> None:
        if not self._table.is_leased:
            return
        for partition in partitions:
            if len(partition.leadership.isr) > 1 and not partition.is_over:
                self._shrink(partition, now)

    async def _check_silence(self, now: float) -> None:
        """Partitions are checked only if a broker is silent."""
        table, seconds_max = self._table, self._silence_seconds_max
        others = [each for each in table.image.brokers if each != table.node_id and table.image.is_active(each)]
        if not table.is_leased or all(
            self._sessions.is_heard(each, now=now, silence_max=seconds_max) for each in others
        ):
            return
        await in_chunks(table.led(), partial(self._shrink_some, now))

    def _shrink(self, partition: Partition, now: float) -> None:
        proposal = partition.leadership.propose_shrinking(
            now=now,
            lag_max=self._table.lag_seconds_max(),
            silence_max=self._silence_seconds_max,
            end_offset=partition.log.end_offset,
            own_epoch=self._table.broker_epoch,
        )
        if proposal is not None:
            self._changes.propose(partition, proposal)

    @property
    def _silence_seconds_max(self) -> float:
        """As long as the controller waits for a broker that stands still: one that its leader cannot reach, but that is
        alive to the controller, would otherwise hold up everything for `replica.lag.time.max.ms`."""
        timings = LeaseTimings(session=self._table.config.broker_session_timeout_ms / 1000)
        return min(max(timings.silence, SILENCE_SECONDS_MIN), self._table.lag_seconds_max())


class PeriodicCheck:
    """Checks the followers periodically. A check that comes late itself (the process was stopped) proves nothing
    about others, and is left out: what they sent in the meantime is still to be read."""

    def __init__(self, *, seconds: Callable[[], float], check: Callable[[float], Awaitable[None]]) -> None:
        self._seconds = seconds
        self._check = check
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            wait = self._seconds()
            started = monotonic()
            await asyncio.sleep(wait)
            now = monotonic()
            if now - started > 1.5 * wait + 1.0:
                continue
            try:
                await self._check(now)
            except Exception:
                log.exception("looking for replicas that do not keep up failed; it is tried again")

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
