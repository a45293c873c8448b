"""The transaction coordinator of this node: the shards that it leads, found by transactional id."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from broker.config import BrokerConfig
from broker.groups.naming import partition_for
from broker.later import Later, mapped
from broker.metadata.image import Image
from broker.metadata.internal import TRANSACTIONS_TOPIC
from broker.replication.replicas import Replicas
from broker.settings import Settings
from broker.topic_creation import TopicCreation
from broker.transactions.elsewhere import Addition, ClusterMarkers, Codes, OtherCoordinators
from broker.transactions.hosted import HostedTransactions
from broker.transactions.markers import LocalMarkers
from broker.transactions.transaction import EPOCH_PER_TRANSACTION
from protocol.errors import ErrorCode

MEMO_MAX: Final = 100_000  # transactional ids whose shard is remembered, so that it need not be computed


class Transactions:
    def __init__(
        self, *, node_id: int, settings: Settings, replicas: Replicas, creation: TopicCreation, markers: LocalMarkers
    ) -> None:
        self.settings = settings
        self.local_markers = markers  # for partitions that we lead
        self._markers = ClusterMarkers(markers, replicas)
        self._others = OtherCoordinators(replicas)
        self.image = Image()
        self._node_id = node_id
        self._replicas = replicas
        self._creation = creation
        self._shards: dict[int, HostedTransactions] = {}
        self._memo: dict[str, HostedTransactions] = {}
        self._closed = False

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    # -- looking up --------------------------------------------------------

    def find(self, transactional_id: str) -> HostedTransactions | ErrorCode:
        """The shard that holds a transactional id, or why not."""
        if self._replicas.lease_until is not None and not self._replicas.is_leased:
            return ErrorCode.NOT_COORDINATOR  # another broker may be by now
        found = self._memo.get(transactional_id)
        return found if found is not None else self._find(transactional_id)

    def _find(self, transactional_id: str) -> HostedTransactions | ErrorCode:
        topic = self.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        hosted = self._shards.get(partition_for(transactional_id, partitions=len(topic.partitions)))
        if hosted is None:
            return ErrorCode.NOT_COORDINATOR
        if hosted.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if len(self._memo) >= MEMO_MAX:
            self._memo.clear()
        self._memo[transactional_id] = hosted
        return hosted

    def coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates an id, -1 if there is none at the moment."""
        topic = self.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return -1
        return topic.partitions[partition_for(transactional_id, partitions=len(topic.partitions))].leader

    def admit(self, addition: Addition) -> Codes | Later[Codes]:
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
        code: ErrorCode | Later[ErrorCode] = hosted.finish(added)
        return mapped(code, lambda code: dict.fromkeys(addition.partitions, code))

    def __iter__(self) -> Iterator[HostedTransactions]:
        return iter(list(self._shards.values()))

    async def leader_of(self, transactional_id: str) -> int:
        """The broker that coordinates an id, or -1. The topic is created when first asked for."""
        if TRANSACTIONS_TOPIC not in self.image.topics:
            await self._creation.create_automatically(TRANSACTIONS_TOPIC)
        partitions = self.image.topics[TRANSACTIONS_TOPIC].partitions
        return partitions[partition_for(transactional_id, partitions=len(partitions))].leader

    # -- following the metadata --------------------------------------------

    def follow(self, old: Image, new: Image) -> None:
        self.image = new
        if old.topics is not new.topics and not self._closed:
            self.host()

    def host(self) -> None:
        """Be the coordinator of what we lead, and of nothing else."""
        image = self.image
        topic = image.topics.get(TRANSACTIONS_TOPIC)
        hosted_topic = self._replicas.topics.get(TRANSACTIONS_TOPIC)
        led = {
            index: hosted_topic.partitions[index]
            for index, partition in enumerate(topic.partitions if topic else ())
            if partition.leader == self._node_id and hosted_topic and index in hosted_topic.partitions
        }
        for index in [index for index, each in self._shards.items() if led.get(index) is not each.partition]:
            self._memo.clear()
            self._shards.pop(index).close()
        for index, partition in led.items():
            if index not in self._shards:
                hosted = HostedTransactions(
                    partition, config=self.settings.current, markers=self._markers, now_ms=self.now_ms
                )
                self._shards[index] = hosted
                hosted.load()

    def reconfigure(self, config: BrokerConfig, _image: Image) -> None:
        for hosted in self:
            hosted.shard.config = config

    # -- in the background -------------------------------------------------

    async def abort_timed_out(self) -> None:
        for hosted in self:
            if not hosted.is_loading:
                hosted.run_all(hosted.shard.time_out(self.now_ms()))

    async def forget_expired(self) -> None:
        for hosted in self:
            if not hosted.is_loading:
                hosted.run_all(hosted.shard.expire(self.now_ms()))

    def close(self) -> None:
        self._closed = True
        self._memo.clear()
        for hosted in self:
            hosted.close()
        self._shards.clear()
