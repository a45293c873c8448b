"""What the controller decides when a leader asks for other in-sync replicas (AlterPartition)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.brokers import circumstances_of
from tidemark.broker.metadata.image import RECOVERED, RECOVERING, Image, PartitionImage, TopicImage
from tidemark.broker.metadata.partitions import revise
from tidemark.protocol.errors import ErrorCode

ANY_EPOCH = -1  # a version of the request that knows no epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    partition_index: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]  # (broker id, the epoch that the leader knows it under)
    leader_recovery_state: int


def check_sender(image: Image, *, broker_id: int, broker_epoch: int) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        raise Refused(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered under epoch {broker_epoch}.")


def alter_isr(
    image: Image, topic: TopicImage, proposal: IsrProposal, config: BrokerConfig, *, leader: int
) -> PartitionImage:
    """The partition after the change; the same object if it is so already."""
    if not 0 <= proposal.partition_index < len(topic.partitions):
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {proposal.partition_index}."
        )
    partition = topic.partitions[proposal.partition_index]
    isr = tuple(broker_id for broker_id, _ in proposal.isr)
    _check_epochs(partition, proposal, leader=leader)
    _check_isr(partition, proposal, isr, leader=leader)
    _check_members(image, partition, proposal)
    circumstances = circumstances_of(image, topic, config)
    if leader not in isr:
        circumstances = replace(circumstances, lost_data=(leader,))
    return revise(
        partition,
        circumstances,
        isr=isr,
        leader_recovery_state=proposal.leader_recovery_state,
    )


def _check_epochs(partition: PartitionImage, proposal: IsrProposal, *, leader: int) -> None:
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        raise Refused(ErrorCode.NOT_CONTROLLER, "This controller knows less than the leader that asks.")
    if proposal.leader_epoch < partition.leader_epoch:
        raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"The leader epoch is {partition.leader_epoch}.")
    if leader != partition.leader:
        raise Refused(ErrorCode.INVALID_REQUEST, f"The leader is {partition.leader}, not {leader}.")
    if proposal.partition_epoch < partition.partition_epoch:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"The partition epoch is {partition.partition_epoch}.")


def _check_isr(partition: PartitionImage, proposal: IsrProposal, isr: tuple[int, ...], *, leader: int) -> None:
    if not set(isr) <= set(partition.replicas) or len(set(isr)) != len(isr):
        raise Refused(ErrorCode.INVALID_REQUEST, f"In sync can only be replicas, each once, not {list(isr)}.")
    # A leader whose disk fails it may step aside, for others that are in sync (Kafka's has no such way).
    if leader not in isr and not (isr and set(isr) <= set(partition.isr)):
        raise Refused(ErrorCode.INVALID_REQUEST, "A leader is in sync with itself, or leaves it to others that are.")
    if proposal.leader_recovery_state == RECOVERING:
        if len(isr) > 1:
            raise Refused(ErrorCode.INVALID_REQUEST, "While a leader recovers, it alone is in sync.")
        if partition.leader_recovery_state == RECOVERED:
            raise Refused(ErrorCode.INVALID_REQUEST, "A leader that has recovered cannot go back to recovering.")


def _check_members(image: Image, partition: PartitionImage, proposal: IsrProposal) -> None:
    """KIP-841, KIP-903: a broker that has gone, or come back since the leader saw it, is not in sync."""
    for broker_id, epoch in proposal.isr:
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.is_active or epoch not in (ANY_EPOCH, broker.broker_epoch):
            raise Refused(ErrorCode.INELIGIBLE_REPLICA, f"Broker {broker_id} cannot be in sync now.")
