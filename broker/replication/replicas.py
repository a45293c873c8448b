"""The replicas of a node, put together: table, roles, logs, followers and housekeeping."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.broker.config import BrokerConfig
from tidemark.broker.replication.cleaner import Cleaner
from tidemark.broker.replication.directory_failures import DirectoryFailures
from tidemark.broker.replication.directory_moves import DirectoryMoves
from tidemark.broker.replication.follower_progress import FollowerProgress
from tidemark.broker.replication.follower_sessions import FollowerSessions
from tidemark.broker.replication.housekeeping import Housekeeping
from tidemark.broker.replication.replica_logs import ReplicaLogs
from tidemark.broker.replication.replica_table import EXPIRED, ReplicaTable
from tidemark.broker.replication.role_assignment import RoleAssignment
from tidemark.broker.replication.scrubber import Scrubber
from tidemark.broker.replication.sync_threads import SyncThreads
from tidemark.storage import LogDirectory

if TYPE_CHECKING:
    from tidemark.broker.peers import Peers

log = logging.getLogger(__name__)


class Replicas:
    def __init__(
        self, *, node_id: int, config: BrokerConfig, directories: list[LogDirectory], now_ms: Callable[[], int]
    ) -> None:
        self._threads = SyncThreads()
        self.table = ReplicaTable(node_id=node_id, config=config, directories=directories, now_ms=now_ms)
        self._logs = ReplicaLogs(self.table)
        self.roles = RoleAssignment(self.table, self._logs, self._threads)
        self.failures = DirectoryFailures(self.table, self.roles, self._threads)
        self.roles.suspect_disk = self.failures.suspect
        self.housekeeping = Housekeeping(self.table, self._threads, suspect_disk=self.failures.suspect)
        self.moves = DirectoryMoves(self.table, self._logs, self._threads)
        self.moves.suspect_disk = self.failures.suspect
        self.moves.placed = lambda replica: self.roles.placed(replica)  # which is set later
        self.cleaner = Cleaner(self.table, self._threads, is_moving=self.moves.__contains__)
        self.scrubber = Scrubber(self.table, self.roles, self._threads)
        self.cleaner.suspect_disk = self.scrubber.suspect_disk = self.failures.suspect
        self.follower_sessions = FollowerSessions(self.table, FollowerProgress(self.roles))

    def start_replication(self, peers: Peers) -> None:
        """This node has others beside it: follow them, and be followed. Without a lease nothing is served."""
        from tidemark.broker.replication.peer_replication import PeerReplication  # a node that is alone does without

        self.table.lease_until = EXPIRED
        self.table.peers = peers
        self.roles.replicator = PeerReplication(self.table, self.roles, self.follower_sessions, peers)
        for hosted in self.table.topics.values():
            for followed in hosted.followed.values():
                self.roles.replicator.follow(followed)

    def retire_strays(self) -> None:
        """See `ReplicaLogs.retire_strays`. Call it when the metadata is up to date, and its logs are open."""
        self._logs.retire_strays()
        self.moves.resume()

    async def stop_replication(self) -> None:
        await self.moves.stop()
        await self.roles.opening.close()
        await self.roles.replicator.stop()

    def end_waits(self) -> None:
        """At shutdown: long polls are answered with what there is."""
        self.table.stopping = True
        self.follower_sessions.end_waits()
        for replica in self.table:
            replica.wake_all()

    def close(self, *, broker_epoch: int = -1) -> None:
        """For any thread, after `roles.stop_following`: with many logs it takes a while.
        `broker_epoch`: of the life that ends; each directory that is closed well keeps it for the next."""
        self.roles.close()
        self.table.readers.shutdown(wait=True, cancel_futures=True)
        self.cleaner.close()
        self.scrubber.close()
        self._threads.shutdown()
        for directory in self.table.directories:
            try:
                directory.close(
                    high_watermarks=self.housekeeping.high_watermarks(directory),
                    is_complete=self.roles.opening.is_complete,
                    broker_epoch=broker_epoch,
                )
            except OSError as error:
                log.error("%s was not closed cleanly: %s", directory.path, error)
