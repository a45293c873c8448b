"""The transaction coordinator of this node: the shards that it leads, found by transactional id."""

from __future__ import annotations

from typing import Any

from tidemark.broker.coordination.coordinator import Coordinator
from tidemark.broker.core.deferred import Deferred, awaited, mapped
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.internal import TRANSACTIONS_TOPIC
from tidemark.broker.replication.partition import Partition
from tidemark.broker.transactions.markers import LocalMarkerWriter
from tidemark.broker.transactions.remote_participants import (
    AddPartitions,
    ClusterMarkerWriter,
    Codes,
    RemoteCoordinators,
)
from tidemark.broker.transactions.transaction import EPOCH_PER_TRANSACTION
from tidemark.broker.transactions.transaction_shard_host import TransactionShardHost
from tidemark.environment import wall_clock_ms
from tidemark.protocol.errors import ErrorCode


class TransactionCoordinator(Coordinator[TransactionShardHost]):
    TOPIC = TRANSACTIONS_TOPIC
    COUNTERS = ("committed", "aborted")

    def __init__(self, *, markers: LocalMarkerWriter, **services: Any) -> None:
        super().__init__(**services)
        self.local_markers = markers  # for partitions that we lead
        self._markers = ClusterMarkerWriter(markers, self._replicas)
        self._others = RemoteCoordinators(self._replicas)

    @staticmethod
    def now_ms() -> int:
        return wall_clock_ms()

    def _start_shard(self, partition: Partition) -> TransactionShardHost:
        host = TransactionShardHost(partition, config=self.settings.current, markers=self._markers, now_ms=self.now_ms)
        host.load()
        return host

    def follow(self, old: Image, new: Image) -> None:
        super().follow(old, new)
        if old.brokers is new.brokers:
            return
        for broker, before in old.brokers.items():
            now = new.brokers.get(broker)
            if now is None or (now.fenced and not before.fenced) or now.broker_epoch != before.broker_epoch:
                self._markers.give_up(broker)
                self._others.give_up(broker)

    def add_partitions(self, addition: AddPartitions) -> Codes | Deferred[Codes]:
        """Add partitions to a transaction, or verify that they are in it. Asks the coordinator of the transactional id,
        which may be another broker."""
        host = self.find(addition.transactional_id)
        if not isinstance(host, TransactionShardHost):
            coordinator = self.coordinator_of(addition.transactional_id)
            if host == ErrorCode.NOT_COORDINATOR and coordinator not in (-1, self._node_id):
                return self._others.ask(coordinator, addition)
            return dict.fromkeys(addition.partitions, host)
        if addition.verify_only:
            return host.shard.verify(addition.transactional_id, addition.producer, addition.partitions)
        added = host.shard.add(
            addition.transactional_id,
            addition.producer,
            addition.partitions,
            client_version=EPOCH_PER_TRANSACTION,
            now_ms=self.now_ms(),
        )
        code: ErrorCode | Deferred[ErrorCode] = host.finish(added)
        return mapped(code, lambda code: dict.fromkeys(addition.partitions, code))

    # -- in the background -------------------------------------------------

    async def abort_timed_out(self) -> None:
        for host in self:
            if not host.is_loading:
                await awaited(host.start_all(host.shard.time_out(self.now_ms())))

    async def forget_expired(self) -> None:
        for host in self:
            if not host.is_loading:
                await awaited(host.start_all(host.shard.expire(self.now_ms())))
