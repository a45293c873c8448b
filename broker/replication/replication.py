"""This node among others: a fetcher per leader that it follows, sessions of those who follow it, in-sync sets."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.lease import LeaseTimings, lease_clock
from tidemark.broker.replication.fetcher import Fetcher
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.follower_sessions import FollowerSessions
from tidemark.broker.replication.isr_changes import InSyncChanges, LagCheck, Led
from tidemark.broker.replication.leadership import GIVEN_UP_SECONDS_MAX
from tidemark.broker.replication.partition import Partition
from tidemark.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidemark.broker.peers import Peers
    from tidemark.broker.replication.replicas import Replicas

log = logging.getLogger(__name__)

LEASE_CHECK_SECONDS: Final = 0.2
SILENCE_CHECK_SECONDS: Final = 1.0
SILENCE_SECONDS_MIN: Final = 2.5  # several times as long as a follower waits for news at most
RETRY_SECONDS: Final = 1.0  # before what could not be opened is tried again


class Replication:
    def __init__(self, replicas: Replicas, peers: Peers) -> None:
        self.sessions = FollowerSessions(replicas)
        self._replicas = replicas
        self._peers = peers
        self._fetchers: dict[int, Fetcher] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._changes = InSyncChanges(
            node_id=replicas.node_id,
            peers=peers,
            broker_epoch=lambda: replicas.broker_epoch,
            settled=self.consider_others,
        )
        self._lag_check = LagCheck(seconds=lambda: self._lag_seconds_max / 2, check=self._shrink)
        self._silence_check = LagCheck(seconds=lambda: SILENCE_CHECK_SECONDS, check=self._look_for_silence)
        Partition.lag_seconds_max = self._lag_seconds_max
        self._loop = asyncio.get_running_loop()
        self._lease_timer = self._loop.call_later(LEASE_CHECK_SECONDS, self._check_lease)
        self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry)

    @property
    def _lag_seconds_max(self) -> float:
        return self._replicas.config.replica_lag_time_max_ms / 1000

    @property
    def _silence_seconds_max(self) -> float:
        """As long as the controller waits for one that stands still: who cannot be reached by its leader alone, but is
        alive to the controller, would otherwise hold up everything for `replica.lag.time.max.ms`."""
        timings = LeaseTimings(session=self._replicas.config.broker_session_timeout_ms / 1000)
        return min(max(timings.silence, SILENCE_SECONDS_MIN), self._lag_seconds_max)

    # -- following ---------------------------------------------------------

    def follow(self, followed: Followed) -> None:
        """Fetch it from its leader, and from nobody else."""
        self.unfollow(followed, keeping=followed.leader)
        if followed.leader < 0:
            return
        fetcher = self._fetchers.get(followed.leader)
        if fetcher is None:
            fetcher = self._fetchers[followed.leader] = Fetcher(
                followed.leader,
                node_id=self._replicas.node_id,
                peers=self._peers,
                config=lambda: self._replicas.config,
                broker_epoch=lambda: self._replicas.broker_epoch,
                failed=self._replicas.failed,
                throttle=self._replicas.follower_throttle,
                is_throttled=self._replicas.is_throttled,
            )
        fetcher.add(followed)

    def unfollow(self, followed: Followed, *, keeping: int = -1) -> None:
        for source, fetcher in list(self._fetchers.items()):
            if source == keeping:
                continue
            fetcher.remove(followed)
            if not len(fetcher):
                del self._fetchers[source]
                task = asyncio.get_running_loop().create_task(fetcher.stop())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    # -- leading -----------------------------------------------------------

    def consider_expansion(self, partition: Partition, node_id: int) -> None:
        proposal = partition.leadership.propose_expansion(
            node_id,
            mark=partition.high_watermark,
            own_epoch=self._replicas.broker_epoch,
        )
        if proposal is not None:
            self._changes.ask(partition, proposal)

    def consider_others(self, partition: Led) -> None:
        """One change is made at a time: who caught up while another was under way has its turn after that."""
        leadership = partition.leadership
        if isinstance(partition, Partition) and len(leadership.isr) < len(leadership.replicas):
            for node_id in leadership.followers:
                self.consider_expansion(partition, node_id)

    def step_aside(self, partition: Led, error: Exception) -> None:
        """Who cannot write cannot lead; another can."""
        proposal = partition.leadership.propose_stepping_aside()
        if proposal is not None:
            log.error("%s-%d is left to another leader: %s", partition.topic, partition.index, error)
            self._changes.ask(partition, proposal)

    def _check_lease(self) -> None:
        """Who is cut off cannot tell who waits here how it ended: they had better ask who leads by now."""
        replicas = self._replicas
        if not replicas.is_leased:
            error = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node is cut off: another may lead by now.")
            for partition in replicas.led():
                partition.end_impatience(error)
                partition.wake_all()
        left = (replicas.lease_until or 0.0) - lease_clock()
        self._lease_timer = self._loop.call_later(max(left + 0.001, LEASE_CHECK_SECONDS), self._check_lease)

    def _retry(self) -> None:
        self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry)
        self._replicas.retry_offline()

    def brokers_changed(self) -> None:
        """Who has gone holds nobody up any more. And one that is active again may be in sync again: who has everything
        asks for nothing more, so that no fetch of its own would bring it up."""
        for partition in self._replicas.led():
            partition.reconsider_mark()
            partition.reconsider_low_mark()
            self.consider_others(partition)

    def _shrink(self, now: float) -> None:
        if not self._replicas.is_leased:
            return
        for partition in self._replicas.led():
            if not partition.leadership.is_alone:
                self._shrink_one(partition, now)
        self.brokers_changed()

    def _look_for_silence(self, now: float) -> None:
        """Only if somebody is silent are partitions looked at."""
        replicas, longest = self._replicas, self._silence_seconds_max
        others = [
            each for each in replicas.image.brokers if each != replicas.node_id and replicas.image.is_active(each)
        ]
        if not replicas.is_leased or all(self.sessions.is_heard(each, now=now, silence_max=longest) for each in others):
            return
        for partition in replicas.led():
            if len(partition.leadership.isr) > 1:
                self._shrink_one(partition, now)

    def _shrink_one(self, partition: Partition, now: float) -> None:
        proposal = partition.leadership.propose_shrinking(
            now=now,
            lag_max=self._lag_seconds_max,
            silence_max=self._silence_seconds_max,
            end_offset=partition.log.end_offset,
            own_epoch=self._replicas.broker_epoch,
        )
        if proposal is not None:
            self._changes.ask(partition, proposal)

    def look_again(self, partition: Partition) -> None:
        """A follower has stopped fetching it: if it does not come back soon, it is not in sync."""
        seconds = GIVEN_UP_SECONDS_MAX + 0.1
        asyncio.get_running_loop().call_later(seconds, self._look, partition)

    def _look(self, partition: Partition) -> None:
        if self._replicas.is_leased and not partition.is_over:
            self._shrink_one(partition, time.monotonic())

    async def stop(self) -> None:
        self._lease_timer.cancel()
        self._retry_timer.cancel()
        await self._lag_check.stop()
        await self._silence_check.stop()
        await self._changes.stop()
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        self._fetchers.clear()
        if self._ending:
            await asyncio.wait(list(self._ending))
