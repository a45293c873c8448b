"""Where to go instead: a refusal names the partition's leader and its address (KIP-951)."""

from __future__ import annotations

from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Endpoint
from tidemark.broker.replication.hosted_topic import HostedTopic


def leader_of(hosted: HostedTopic | None, index: int) -> tuple[int, int]:
    """(leader, leader epoch), each -1 if not known."""
    if hosted is None or not 0 <= index < len(hosted.image.partitions):
        return -1, -1
    partition = hosted.image.partitions[index]
    return partition.leader, partition.leader_epoch


def endpoint_of(image: Image, node_id: int, listener: str) -> tuple[Endpoint, str | None] | None:
    """A broker's address as clients of this listener can use it, and its rack."""
    broker = image.brokers.get(node_id)
    endpoint = None if broker is None or broker.fenced else broker.endpoints.get(listener)
    return None if broker is None or endpoint is None else (endpoint, broker.rack)
