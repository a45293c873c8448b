"""The links of one node to all others: to brokers by their id, and to the current controller."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tidemark.broker.metadata.image import Image
from tidemark.broker.peers.link import Connector, PeerLink, PeerUnavailable
from tidemark.protocol.frames import Scratch

# Requests to the controller; the quorum's own messages go to its members whichever of them leads.
_ASKING_THE_CONTROLLER: Final = frozenset(("controller", "controller heartbeat", "controller forwarding"))

# Requests to brokers: among themselves, and for clients that asked another one.
_ASKING_BROKERS: Final = ("broker", "controller clients")
_QUORUM: Final = "controller quorum"


Connectors = Callable[[str], Connector | None]


class Address(NamedTuple):
    host: str
    port: int


class Peers:
    def __init__(
        self,
        *,
        node_id: int,
        listener: str,
        image: Callable[[], Image],
        leader_id: Callable[[], int | None],
        controllers: Callable[[], Mapping[int, Address]],
        silence_seconds_max: float | None = None,
        controller_listener: str = "",
        connectors: Connectors | None = None,
    ) -> None:
        """`listener`: the name of the one that brokers use among themselves, `controller_listener` that of the quorum;
        `connectors`: how connections to a listener of that name are secured; `leader_id`: of the quorum, as known here;
        `controllers`: where the controllers listen; `silence_seconds_max`: how long a member of the quorum may be
        silent on its connection before another is opened."""
        self.node_id = node_id
        self._listener = listener
        self._image = image
        self._leader_id = leader_id
        self._controllers = controllers
        self._silence_seconds_max = silence_seconds_max
        self._controller_listener = controller_listener
        self._connectors = connectors or (lambda _listener: None)
        self.lost: Callable[[int], None] | None = None  # called when a connection to a node has ended
        self._links: dict[tuple[str, int], PeerLink] = {}
        self._closing: list[PeerLink] = []
        self._scratch = Scratch()  # shared by the links of this node, and by nothing else in the process

    def to_broker(self, node_id: int, *, purpose: str = "") -> PeerLink:
        """The link to a registered broker, at the address it registered last. Each purpose has a connection of its own:
        answers come in the order of the requests, and a fetch that waits holds up what is behind it."""
        broker = self._image().brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if endpoint is None:
            raise PeerUnavailable(f"broker {node_id} has no address on the listener {self._listener}")
        return self._link(f"broker {purpose}".rstrip(), node_id, Address(endpoint.host, endpoint.port))

    def to_controller(self, *, purpose: str = "") -> PeerLink:
        """The link to the controller, be it this very node."""
        leader_id = self._leader_id()
        if leader_id is None:
            raise PeerUnavailable("there is no controller at the moment")
        return self.to_member(leader_id, purpose=purpose)

    def to_member(self, node_id: int, *, purpose: str = "") -> PeerLink:
        """The link to the controller listener of a member of the quorum."""
        address = self._controllers().get(node_id)
        if address is None:
            raise PeerUnavailable(f"the address of controller {node_id} is not known")
        return self._link(f"controller {purpose}".rstrip(), node_id, address)

    def link_to(self, address: Address, *, name: str = "") -> PeerLink:
        """A new link to a controller listener of a node whose id is not known yet. The caller closes it."""
        connector = self._connectors(self._controller_listener)
        return PeerLink(*address, client_id=client_id_of(self.node_id), name=name, connector=connector)

    def leader_changed(self) -> None:
        """Hang up on the previous controller, so that waiting requests are sent to the new one: the old one may be
        stalled without closing its connections."""
        leader_id = self._leader_id()
        if leader_id is None:
            return
        for (kind, node_id), link in list(self._links.items()):
            if node_id != leader_id and kind in _ASKING_THE_CONTROLLER:
                link.hang_up()

    def follow(self, old: Image, new: Image) -> None:
        """Hang up on brokers that are fenced now: they may be silent for long, and no request should wait for them."""
        if old.brokers is new.brokers:
            return
        gone = {node_id for node_id, broker in old.brokers.items() if not broker.fenced} - {
            node_id for node_id, broker in new.brokers.items() if not broker.fenced
        }
        for (kind, node_id), link in list(self._links.items()):
            if node_id in gone and kind.startswith(_ASKING_BROKERS):
                link.hang_up()

    async def close(self) -> None:
        for link in (*self._links.values(), *self._closing):
            await link.close()

    def _link(self, kind: str, node_id: int, address: Address) -> PeerLink:
        link = self._links.get((kind, node_id))
        if link is not None and (link.host, link.port) == address:
            return link
        if link is not None:
            link.hang_up()
            self._closing.append(link)
        name = f"{kind} {node_id} ({address.host}:{address.port})"
        listener = self._listener if kind.startswith("broker") else self._controller_listener
        link = PeerLink(
            address.host,
            address.port,
            client_id=client_id_of(self.node_id),
            name=name,
            lost=lambda: None if self.lost is None else self.lost(node_id),
            scratch=self._scratch,
            silence_seconds_max=self._silence_seconds_max if kind == _QUORUM else None,
            connector=self._connectors(listener),
        )
        self._links[kind, node_id] = link
        return link


def client_id_of(node_id: int) -> str:
    """The client id that a node's links carry."""
    return f"node-{node_id}"


def node_id_of(client_id: str | None) -> int | None:
    """The node that a connection to the controller listener came from."""
    match = re.fullmatch(r"node-(\d{1,9})", client_id or "")
    return None if match is None else int(match[1])
