"""The cluster as handlers see it: the newest image, who is in it, where they are reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.metadata.image import Image
from broker.metadata.store import MetadataStore


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class Cluster:
    def __init__(self, store: MetadataStore, *, cluster_id: str, node_id: int) -> None:
        self._store = store
        self.cluster_id = cluster_id
        self.controller_id = node_id

    @property
    def image(self) -> Image:
        return self._store.image

    def brokers(self, listener: str) -> Iterator[BrokerAddress]:
        """Every broker that has an address on the listener a client came through."""
        for broker in self._store.image.brokers.values():
            endpoint = broker.endpoints.get(listener)
            if endpoint is not None:
                yield BrokerAddress(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
