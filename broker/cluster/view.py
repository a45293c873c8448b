"""The cluster as handlers see it: the newest image, the brokers in it and their addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidemark.broker.core.errors import CloseConnection
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.store import MetadataStore

if TYPE_CHECKING:
    from tidemark.broker.cluster.suspected_brokers import SuspectedBrokers


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterView:
    def __init__(
        self,
        store: MetadataStore,
        *,
        node_id: int,
        suspected_brokers: SuspectedBrokers | None = None,
        is_leased: Callable[[], bool] = lambda: True,
        is_isolated: Callable[[], bool] = lambda: False,
    ) -> None:
        """`suspected_brokers`: brokers that may be dead, on a node that has others beside it. `is_leased`: whether this
        node certainly leads what its image says it leads. `is_isolated`: whether it hears from no other node."""
        self._store = store
        self._node_id = node_id
        self.suspected_brokers = suspected_brokers
        self._is_leased = is_leased
        self._is_isolated = is_isolated

    def check_contact(self) -> None:
        """A node that is cut off from all others cannot name the leaders. A client that gets an answer, even a useless
        one, asks the same broker again and again, because it used it most; hung up on, it asks another."""
        if not self._is_leased() and self._is_isolated():
            raise CloseConnection("this node is cut off from the others, and cannot name the leaders")

    @property
    def unsure_of(self) -> int | None:
        """The broker that clients should not be told is a leader: this very node, while it has no lease."""
        return None if self._is_leased() else self._node_id

    @property
    def cluster_id(self) -> str:
        return self._store.image.cluster_id

    @property
    def controller_id(self) -> int:
        """Where clients send what is for the controller. Any broker will do, and the controller itself is the best."""
        leader_id = self._store.leader_id
        return leader_id if leader_id is not None and self._store.image.is_active(leader_id) else self._node_id

    @property
    def metadata_offset(self) -> int:
        """How much of the metadata log this node has seen."""
        return self._store.applied_index

    @property
    def image(self) -> Image:
        return self._store.image

    def brokers(self, listener: str, *, fenced: bool = False) -> Iterator[BrokerAddress]:
        """Every broker that serves on the listener a client came through; also those that are fenced, if asked for."""
        for broker in self._store.image.brokers.values():
            endpoint = broker.endpoints.get(listener)
            if endpoint is not None and (fenced or not broker.fenced):
                yield BrokerAddress(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
