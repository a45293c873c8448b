"""The links of one node to all others: to brokers by their id, to whoever is the controller now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.metadata.image import Image
from broker.peers.link import PeerLink, PeerUnavailable


class Address(NamedTuple):
    host: str
    port: int


Key = tuple[int, str]  # a node, and what the connection to it is for


class Peers:
    def __init__(
        self,
        *,
        node_id: int,
        listener: str,
        image: Callable[[], Image],
        leader_id: Callable[[], int | None],
        controllers: Callable[[], Mapping[int, Address]],
    ) -> None:
        """`listener`: the name of the one that brokers use among themselves; `leader_id`: of the quorum, as known here;
        `controllers`: where the controllers listen."""
        self.node_id = node_id
        self._listener = listener
        self._image = image
        self._leader_id = leader_id
        self._controllers = controllers
        self._brokers: dict[Key, PeerLink] = {}
        self._to_controllers: dict[Key, PeerLink] = {}
        self._closing: list[PeerLink] = []

    def to_broker(self, node_id: int, *, purpose: str = "") -> PeerLink:
        """The link to a registered broker, at the address it registered last. Each purpose has a connection of its own:
        answers come in the order of the requests, and a fetch that waits holds up what is behind it."""
        broker = self._image().brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if endpoint is None:
            raise PeerUnavailable(f"broker {node_id} has no address on the listener {self._listener}")
        kind = f"broker {purpose}".rstrip()
        return self._link(self._brokers, (node_id, purpose), Address(endpoint.host, endpoint.port), kind=kind)

    def to_controller(self) -> PeerLink:
        """The link to the controller, be it this very node."""
        leader_id = self._leader_id()
        if leader_id is None:
            raise PeerUnavailable("there is no controller at the moment")
        return self.to_node_of_quorum(leader_id)

    def to_node_of_quorum(self, node_id: int) -> PeerLink:
        """The link to a member's controller listener."""
        address = self._controllers().get(node_id)
        if address is None:
            raise PeerUnavailable(f"nobody knows where controller {node_id} listens")
        return self._link(self._to_controllers, (node_id, ""), address, kind="controller")

    async def close(self) -> None:
        for link in (*self._brokers.values(), *self._to_controllers.values(), *self._closing):
            await link.close()

    def _link(self, links: dict[Key, PeerLink], key: Key, address: Address, *, kind: str) -> PeerLink:
        link = links.get(key)
        if link is not None and (link.host, link.port) == address:
            return link
        if link is not None:
            link.hang_up()
            self._closing.append(link)
        name = f"{kind} {key[0]} ({address.host}:{address.port})"
        link = links[key] = PeerLink(address.host, address.port, client_id=f"node-{self.node_id}", name=name)
        return link
