"""Talking to the other nodes of the cluster."""

from tidemark.broker.peers.link import PeerLink, PeerUnavailable
from tidemark.broker.peers.peers import Address, Peers, node_id_of

__all__ = ["Address", "PeerLink", "PeerUnavailable", "Peers", "node_id_of"]
