"""The topics that belong to the brokers themselves."""

from __future__ import annotations

from typing import Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.topics import NewTopic

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))


def transactions_topic(image: Image, broker: BrokerConfig, *, topic_id: bytes) -> NewTopic:
    """Likewise; and a decision is never left to a replica that may not have seen it."""
    brokers = len(image.brokers)
    return NewTopic(
        name=TRANSACTIONS_TOPIC,
        topic_id=topic_id,
        partitions=broker.transaction_state_log_num_partitions,
        replication_factor=min(broker.transaction_state_log_replication_factor, brokers),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(broker.transaction_state_log_min_isr, brokers)),
            "segment.bytes": str(broker.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def offsets_topic(image: Image, broker: BrokerConfig, *, topic_id: bytes) -> NewTopic:
    """Kept for ever and compacted; as many replicas as are wanted, or as there are brokers."""
    return NewTopic(
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
