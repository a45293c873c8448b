"""The fetchers of this node: one for each broker that leads something this node follows."""

from __future__ import annotations

import asyncio

from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.peers import Peers
from tidemark.broker.replication.fetcher import Fetcher
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.role_assignment import RoleAssignment
from tidemark.broker.replication.throttle import is_listed


class LeaderFetchers:
    def __init__(self, table: ReplicaTable, roles: RoleAssignment, peers: Peers) -> None:
        self._table = table
        self._roles = roles
        self._peers = peers
        self._fetchers: dict[int, Fetcher] = {}
        self._stopping: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def follow(self, followed: Followed) -> None:
        """Fetch it from its leader, and from no other broker."""
        self.unfollow(followed, but_from=followed.leader)
        if followed.leader < 0:
            return
        fetcher = self._fetchers.get(followed.leader)
        if fetcher is None:
            fetcher = self._fetchers[followed.leader] = self._new_fetcher(followed.leader)
        fetcher.add(followed)

    def unfollow(self, followed: Followed, *, but_from: int = -1) -> None:
        for leader, fetcher in list(self._fetchers.items()):
            if leader == but_from:
                continue
            fetcher.remove(followed)
            if not len(fetcher):
                del self._fetchers[leader]
                task = asyncio.get_running_loop().create_task(fetcher.stop())
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)

    async def stop(self) -> None:
        while self._fetchers:  # meanwhile the metadata may change, and what is followed with it
            _, fetcher = self._fetchers.popitem()
            await fetcher.stop()
        if self._stopping:
            await asyncio.wait(list(self._stopping))

    def _new_fetcher(self, leader: int) -> Fetcher:
        return Fetcher(
            leader,
            node_id=self._table.node_id,
            peers=self._peers,
            config=lambda: self._table.config,
            broker_epoch=lambda: self._table.broker_epoch,
            failed=self._roles.failed,
            throttle=self._table.follower_throttle,
            is_throttled=self._is_throttled,
        )

    def _is_throttled(self, followed: Followed) -> bool:
        """Whether what is fetched of it counts against `follower.replication.throttled.rate`."""
        table = self._table
        if not table.follower_throttle.is_set or (hosted := table.topics_by_id.get(followed.topic_id)) is None:
            return False
        listed = followed.config.follower_replication_throttled_replicas
        is_in_sync = table.node_id in hosted.image.partitions[followed.index].isr
        return not is_in_sync and is_listed(listed, index=followed.index, node_id=table.node_id)
