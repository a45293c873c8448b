"""Talking to the other nodes of the cluster."""

from tidemark.broker.peers.link import Channel, Connector, PeerLink, PeerUnavailable, PeerUnreachable
from tidemark.broker.peers.peers import Address, Connectors, Peers, node_id_of

__all__ = [
    "Address",
    "Channel",
    "Connector",
    "Connectors",
    "PeerLink",
    "PeerUnavailable",
    "PeerUnreachable",
    "Peers",
    "node_id_of",
]
