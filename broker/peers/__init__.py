"""Talking to the other nodes of the cluster."""

from broker.peers.link import PeerLink, PeerUnavailable
from broker.peers.peers import Peers

__all__ = ["PeerLink", "PeerUnavailable", "Peers"]
