"""What the controller decides about log directories: in which one a broker has its replica, and which have failed
(KIP-858).

A broker says where it has put a replica (AssignReplicasToDirs), and which of its directories have failed (in its
heartbeats). What the controller knows of it has two uses: another replica leads at once when a directory fails, and a
broker that starts without one of its directories knows what was in it, and does not begin those logs anew elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.brokers import circumstances_of, each_partition
from tidemark.broker.metadata.features import OUR_METADATA_VERSION, SECURITY_LEVEL, finalized
from tidemark.broker.metadata.image import (
    NO_LEADER,
    UNASSIGNED,
    BrokerImage,
    Image,
    PartitionImage,
    TopicImage,
    broker_record,
)
from tidemark.broker.metadata.partitions import Circumstances, revise
from tidemark.broker.metadata.records import Record
from tidemark.protocol.errors import ErrorCode


def may_write(image: Image) -> bool:
    """Whether every broker can read records that name directories."""
    return finalized(image)[OUR_METADATA_VERSION] >= SECURITY_LEVEL


def of_new_replicas(image: Image, replicas: Sequence[int]) -> tuple[bytes, ...]:
    """A broker with one directory has its replica there; the others will say where they put it."""
    known = tuple(_only_directory(image.brokers.get(each)) for each in replicas)
    return known if any(each != UNASSIGNED for each in known) else ()


def _only_directory(broker: BrokerImage | None) -> bytes:
    return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else UNASSIGNED


def assign(
    image: Image, topic: TopicImage, index: int, config: BrokerConfig, *, broker_id: int, directory: bytes
) -> PartitionImage:
    """The partition once a broker has its replica in this directory; the same object if it is so already."""
    if not 0 <= index < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}.")
    partition = topic.partitions[index]
    if broker_id not in partition.replicas:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {broker_id} has no replica of {topic.name}-{index}.")
    if partition.directory_of(broker_id) == directory:
        return partition
    directories = tuple(directory if each == broker_id else partition.directory_of(each) for each in partition.replicas)
    after = partition._replace(directories=directories)
    if after.leader == NO_LEADER:  # its directory had failed, perhaps, and it may lead again
        after = revise(after, circumstances_of(image, topic, config))
    # One more, as with every change: whoever proposes another has to know of this one.
    return after._replace(partition_epoch=partition.partition_epoch + 1)


def fail(image: Image, broker_id: int, failed: Collection[bytes], config: BrokerConfig) -> Iterator[Record]:
    """Directories of a broker do not work any more: others lead what was in them, and it is not in sync there."""
    broker = image.brokers.get(broker_id)
    if broker is None or not set(failed) & set(broker.log_dirs):
        return
    left = tuple(each for each in broker.log_dirs if each not in failed)
    # Not even with the last one gone: an empty list would mean that nothing is known.
    changed = broker_record(replace(broker, log_dirs=left or (UNASSIGNED,)))
    yield changed
    yield from _leave(image.apply([changed]), broker_id, failed, config)


def _leave(image: Image, broker_id: int, failed: Collection[bytes], config: BrokerConfig) -> Iterator[Record]:
    def concerns(partition: PartitionImage) -> bool:
        is_concerned = broker_id in partition.isr or partition.leader == broker_id
        return is_concerned and partition.directory_of(broker_id) in failed

    def change(partition: PartitionImage, circumstances: Circumstances) -> PartitionImage:
        return revise(partition, circumstances, isr=[each for each in partition.isr if each != broker_id])

    return each_partition(image, config, concerns=concerns, change=change)
