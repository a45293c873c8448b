"""Elections on request (ElectLeaders), and the regular return to preferred leaders."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.brokers import circumstances_of, each_partition
from tidemark.broker.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidemark.broker.metadata.partitions import Election, revise
from tidemark.broker.metadata.records import PartitionRecord
from tidemark.protocol.errors import ErrorCode


def elect(image: Image, topic: TopicImage, index: int, election: Election, config: BrokerConfig) -> PartitionImage:
    """The partition after the election; refused with the reason why there was none (KIP-460)."""
    if not 0 <= index < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}.")
    partition = topic.partitions[index]
    if election is Election.PREFERRED and partition.leader == partition.replicas[0]:
        raise Refused(ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads already.")
    if election is Election.UNCLEAN and partition.leader != NO_LEADER:
        raise Refused(ErrorCode.ELECTION_NOT_NEEDED, "The partition has a leader.")
    after = revise(partition, circumstances_of(image, topic, config, election=election))
    if election is Election.PREFERRED and after.leader != partition.replicas[0]:
        raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred replica is not in sync.")
    if after.leader == NO_LEADER:
        raise Refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of the replicas is there.")
    return after


def return_to_preferred(image: Image, config: BrokerConfig, *, partitions_max: int) -> list[PartitionRecord]:
    """Give partitions back to their first replica where that is in sync (auto.leader.rebalance.enable)."""

    def is_elsewhere(partition: PartitionImage) -> bool:
        preferred = partition.replicas[0]
        return partition.leader not in (preferred, NO_LEADER) and preferred in partition.isr

    found: Iterator[PartitionRecord] = each_partition(
        image, config, concerns=is_elsewhere, change=revise, election=Election.PREFERRED
    )
    return list(islice(found, partitions_max))
