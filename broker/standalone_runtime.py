"""A node that is a cluster of its own: a quorum of one, without peers.

It offers what `ClusterRuntime` offers, made of simpler parts: registering needs no other node, the lease has no end
(no other node can become leader), and there is no other node to hand leadership to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemark.broker.cluster.identity import NodeIdentity, random_id
from tidemark.broker.cluster.kafka_adoption import adopt_topics
from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.config import BrokerConfig
from tidemark.broker.metadata.features import SUPPORTED, new_cluster
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.min_isr import write_cluster_value
from tidemark.broker.metadata.producer_ids import reserve
from tidemark.broker.metadata.records import Endpoint, FeatureRange, Record, RegisterBrokerRecord
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.replication.replicas import Replicas
from tidemark.broker.server.server import Server

Services = dict[str, Callable[[], Any]]


class StandaloneRuntime:
    forwarding = None

    def __init__(
        self,
        config: BrokerConfig,
        directory: Path,
        *,
        identity: NodeIdentity,
        replicas: Replicas,
        endpoints: Callable[[], Sequence[Endpoint]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._replicas = replicas
        self._endpoints = endpoints
        self.store = MetadataStore(directory, node_id=config.node_id, failed=failed)
        self.view = ClusterView(self.store, node_id=config.node_id)

    def services(self) -> Services:
        return {"quorum": lambda: None}

    async def join(self, _server: Server, _services: Mapping[str, Callable[[], Any]]) -> None:
        """Returns when this broker is registered. Topics that Kafka left on the disks are taken over first."""
        await self.store.start()
        if self.store.is_new:
            await adopt_topics(self.store, self._replicas.table.directories, node_id=self._config.node_id)
        await self.store.change(self._registration)

    def _registration(self, image: Image) -> list[Record]:
        registration = RegisterBrokerRecord(
            broker_id=self._config.node_id,
            broker_epoch=self.store.next_index,
            rack=self._config.broker_rack,
            endpoints=list(self._endpoints()),
            features=[
                FeatureRange(name=name, min_version=low, max_version=high) for name, (low, high) in SUPPORTED.items()
            ],
        )
        records: list[Record] = [registration, *write_cluster_value(image, self._config)]
        if not image.cluster_id:
            return [*new_cluster(self._identity.cluster_id or random_id()), *records]
        return records

    def start_replication(self) -> None:
        """No leader to follow, and no followers."""

    async def unfence(self) -> None:
        """A broker that registers with itself is never fenced."""

    async def leave(self) -> None:
        """No other node could lead in this one's place."""

    @property
    def broker_epoch(self) -> int:
        """No controller asks how the last run of this node ended."""
        return -1

    async def allocate_producer_ids(self) -> int:
        return await reserve(self.store)

    async def close(self) -> None:
        await self.store.close()
