"""The topics that belong to the brokers themselves."""

from __future__ import annotations

from typing import Final

from broker.config import BrokerConfig
from broker.metadata.image import Image
from broker.metadata.topics import TopicWish

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))


def offsets_topic(image: Image, broker: BrokerConfig, *, topic_id: bytes) -> TopicWish:
    """Kept for ever and compacted; as many replicas as are wanted, or as there are brokers."""
    return TopicWish(
        name=OFFSETS_TOPIC,
        topic_id=topic_id,
        partitions=broker.offsets_topic_num_partitions,
        replication_factor=min(broker.offsets_topic_replication_factor, len(image.brokers)),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(broker.offsets_topic_segment_bytes),
        },
    )
