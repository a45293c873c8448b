"""The transaction coordinator of this node: the shards that it leads, found by transactional id."""

from __future__ import annotations

import time
from typing import Any

from tidemark.broker.coordination.shards import Shards
from tidemark.broker.core.deferred import Deferred, mapped
from tidemark.broker.metadata.internal import TRANSACTIONS_TOPIC
from tidemark.broker.replication.partition import Partition
from tidemark.broker.transactions.elsewhere import Addition, ClusterMarkers, Codes, OtherCoordinators
from tidemark.broker.transactions.hosted import HostedTransactions
from tidemark.broker.transactions.markers import LocalMarkers
from tidemark.broker.transactions.transaction import EPOCH_PER_TRANSACTION
from tidemark.protocol.errors import ErrorCode


class Transactions(Shards[HostedTransactions]):
    TOPIC = TRANSACTIONS_TOPIC

    def __init__(self, *, markers: LocalMarkers, **services: Any) -> None:
        super().__init__(**services)
        self.local_markers = markers  # for partitions that we lead
        self._markers = ClusterMarkers(markers, self._replicas)
        self._others = OtherCoordinators(self._replicas)

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    def _start_shard(self, partition: Partition) -> HostedTransactions:
        hosted = HostedTransactions(partition, config=self.settings.current, markers=self._markers, now_ms=self.now_ms)
        hosted.load()
        return hosted

    def admit(self, addition: Addition) -> Codes | Deferred[Codes]:
        """Have partitions counted into a transaction, or find out whether they are, by its coordinator, here or
        elsewhere."""
        hosted = self.find(addition.transactional_id)
        if not isinstance(hosted, HostedTransactions):
            coordinator = self.coordinator_of(addition.transactional_id)
            if hosted == ErrorCode.NOT_COORDINATOR and coordinator not in (-1, self._node_id):
                return self._others.ask(coordinator, addition)
            return dict.fromkeys(addition.partitions, hosted)
        if addition.verify_only:
            return hosted.shard.verify(addition.transactional_id, addition.producer, addition.partitions)
        added = hosted.shard.add(
            addition.transactional_id,
            addition.producer,
            addition.partitions,
            client_version=EPOCH_PER_TRANSACTION,
            now_ms=self.now_ms(),
        )
        code: ErrorCode | Deferred[ErrorCode] = hosted.finish(added)
        return mapped(code, lambda code: dict.fromkeys(addition.partitions, code))

    # -- in the background -------------------------------------------------

    async def abort_timed_out(self) -> None:
        for hosted in self:
            if not hosted.is_loading:
                hosted.run_all(hosted.shard.time_out(self.now_ms()))

    async def forget_expired(self) -> None:
        for hosted in self:
            if not hosted.is_loading:
                hosted.run_all(hosted.shard.expire(self.now_ms()))
