"""Moving partitions to other replicas (KIP-455): begin and cancel. `partitions.revise` ends it when all are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.brokers import circumstances_of
from tidemark.broker.metadata.image import Image, PartitionImage, TopicImage
from tidemark.broker.metadata.partitions import Circumstances, revise
from tidemark.protocol.errors import ErrorCode


def reassign(
    image: Image,
    topic: TopicImage,
    index: int,
    target: Sequence[int] | None,
    config: BrokerConfig,
    *,
    factor_may_change: bool = True,
) -> PartitionImage:
    """The partition on its way to `target`; `None` cancels what is under way."""
    if not 0 <= index < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}.")
    partition = topic.partitions[index]
    circumstances = circumstances_of(image, topic, config)
    if target is None:
        return _cancel(partition, circumstances)
    _check(image, target)
    origin = original_replicas(partition)
    if not factor_may_change and len(target) != len(origin):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition has {len(origin)} replica(s), and {len(target)} are asked for.",
        )
    adding = [each for each in target if each not in origin]
    removing = [each for each in origin if each not in target]
    # Also what an earlier move had begun to add and this one does not want any more goes at once.
    isr = [each for each in partition.isr if each in target or each in origin]
    if not isr:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "None of the replicas that remain is in sync.")
    return revise(partition, circumstances, replicas=[*target, *removing], isr=isr, adding=adding, removing=removing)


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Those of before the move under way."""
    return tuple(each for each in partition.replicas if each not in partition.adding)


def is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def moving(image: Image) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if is_moving(partition):
                yield topic, index, partition


def _cancel(partition: PartitionImage, circumstances: Circumstances) -> PartitionImage:
    if not is_moving(partition):
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "Nothing is under way.")
    replicas = original_replicas(partition)
    isr = [each for each in partition.isr if each in replicas]
    if not isr:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "None of the replicas from before is in sync: there is no way back."
        )
    return revise(partition, circumstances, replicas=replicas, isr=isr, adding=(), removing=())


def _check(image: Image, target: Sequence[int]) -> None:
    if not target:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The list of replicas is empty.")
    if len(set(target)) != len(target):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"A broker is named twice: {list(target)}.")
    unknown = sorted(set(target) - image.brokers.keys())
    if unknown:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"There is no broker {', '.join(map(str, unknown))}.")
