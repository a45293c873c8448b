"""The group and the transaction coordinator: created when a request needs one, or when its topic exists.

Most brokers that start (in a test, say) never see a group or a transaction; the code for them is loaded with the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.broker.cluster.topic_creation import TopicCreation
from tidemark.broker.config import BrokerConfig
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.internal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidemark.broker.replication.replica_table import ReplicaTable

if TYPE_CHECKING:
    from tidemark.broker.groups.coordinator import GroupCoordinator
    from tidemark.broker.transactions.coordinator import TransactionCoordinator


class Coordinators:
    def __init__(
        self, *, node_id: int, settings: DynamicConfig, replicas: ReplicaTable, creation: TopicCreation
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._replicas = replicas
        self._creation = creation
        self._image = Image()
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._closed = False

    @property
    def groups(self) -> GroupCoordinator:
        if self._groups is None:
            from tidemark.broker.groups.coordinator import GroupCoordinator

            self._groups = GroupCoordinator(
                node_id=self._node_id,
                settings=self._settings,
                replicas=self._replicas,
                create_topic=self._creation.create_automatically,
            )
            if self._closed:  # the first request of its kind arrived while the node was stopping
                self._groups.close()
            self._groups.follow(Image(), self._image)
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinator:
        if self._transactions is None:
            from tidemark.broker.transactions.coordinator import TransactionCoordinator
            from tidemark.broker.transactions.markers import LocalMarkerWriter

            self._transactions = TransactionCoordinator(
                node_id=self._node_id,
                settings=self._settings,
                replicas=self._replicas,
                create_topic=self._creation.create_automatically,
                markers=LocalMarkerWriter(replicas=self._replicas, groups=self.groups),
            )
            if self._closed:
                self._transactions.close()
            self._transactions.follow(Image(), self._image)
        return self._transactions

    @property
    def existing_groups(self) -> GroupCoordinator | None:
        """None if nothing has needed it yet."""
        return self._groups

    @property
    def existing_transactions(self) -> TransactionCoordinator | None:
        return self._transactions

    def follow(self, old: Image, new: Image) -> None:
        self._image = new
        if self._closed:
            return
        if self._groups is not None:
            self._groups.follow(old, new)
        elif OFFSETS_TOPIC in new.topics:
            _ = self.groups
        if self._transactions is not None:
            self._transactions.follow(old, new)
        elif TRANSACTIONS_TOPIC in new.topics:
            _ = self.transactions

    def opened(self, topic: str) -> None:
        """A log of one of our topics was opened only after the metadata had said that we lead it."""
        if self._closed:
            return
        if topic == OFFSETS_TOPIC and self._groups is not None:
            self._groups.host()
        elif topic == TRANSACTIONS_TOPIC and self._transactions is not None:
            self._transactions.host()

    def reconfigure(self, config: BrokerConfig, image: Image) -> None:
        if self._groups is not None:
            self._groups.reconfigure(config, image)
        if self._transactions is not None:
            self._transactions.reconfigure(config, image)

    # -- in the background -------------------------------------------------

    async def expire_offsets(self) -> None:
        if self._groups is not None:
            await self._groups.expire()

    async def abort_timed_out(self) -> None:
        if self._transactions is not None:
            await self._transactions.abort_timed_out()

    async def forget_expired(self) -> None:
        if self._transactions is not None:
            await self._transactions.forget_expired()

    def close(self) -> None:
        self._closed = True
        if self._transactions is not None:
            self._transactions.close()
        if self._groups is not None:
            self._groups.close()
