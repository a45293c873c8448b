"""What the controller knows of log directories, and what it does when one fails."""

from __future__ import annotations

import pytest

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata import directories
from tidemark.broker.metadata.features import new_cluster
from tidemark.broker.metadata.image import (
    UNASSIGNED,
    BrokerImage,
    Image,
    PartitionImage,
    broker_record,
    partition_record,
)
from tidemark.broker.metadata.records import TopicRecord
from tidemark.protocol.errors import ErrorCode

TOPIC = bytes(15) + b"t"
A, B, C = (bytes(15) + each for each in (b"a", b"b", b"c"))
CONFIG = BrokerConfig(node_id=1)


def image_of(partition: PartitionImage, **log_dirs: tuple[bytes, ...]) -> Image:
    brokers = [
        BrokerImage(broker_id=each, broker_epoch=each, rack=None, endpoints={}, log_dirs=log_dirs.get(f"of_{each}", ()))
        for each in partition.replicas
    ]
    return Image().apply(
        [
            *new_cluster("c"),
            *map(broker_record, brokers),
            TopicRecord(name="t", topic_id=TOPIC),
            partition_record(TOPIC, 0, partition),
        ]
    )


def partition(**changes: object) -> PartitionImage:
    return PartitionImage(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=3, partition_epoch=5)._replace(**changes)  # type: ignore[arg-type]


def test_a_replica_is_assigned_to_the_directory_that_its_broker_names() -> None:
    image = image_of(partition())
    after = directories.assign(image, image.topics["t"], 0, CONFIG, broker_id=2, directory=B)
    assert (after.directory_of(1), after.directory_of(2)) == (UNASSIGNED, B)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 3, 6)


def test_only_a_broker_that_has_a_replica_can_say_where_it_is() -> None:
    image = image_of(partition())
    with pytest.raises(Refused) as refused:
        directories.assign(image, image.topics["t"], 0, CONFIG, broker_id=7, directory=B)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_another_leads_what_was_in_a_directory_that_failed() -> None:
    image = image_of(partition(directories=(A, B)), of_1=(A, C), of_2=(B,))
    after = image.apply(directories.fail(image, 1, [A], CONFIG))
    changed = after.topics["t"].partitions[0]
    assert (changed.leader, changed.isr, changed.leader_epoch) == (2, (2,), 4)
    assert after.brokers[1].log_dirs == (C,)
    assert after.brokers[1].is_active


def test_what_is_in_other_directories_stays_as_it_is() -> None:
    image = image_of(partition(directories=(C, B)), of_1=(A, C), of_2=(B,))
    after = image.apply(directories.fail(image, 1, [A], CONFIG))
    assert after.topics["t"].partitions[0] == image.topics["t"].partitions[0]


def test_a_replica_in_a_failed_directory_is_not_elected_though_its_broker_is_there() -> None:
    image = image_of(partition(directories=(A, B), isr=(1,), elr=(2,)), of_1=(A, C), of_2=(B, C))
    image = image.apply(directories.fail(image, 2, [B], CONFIG))
    image = image.apply(directories.fail(image, 1, [A], CONFIG))
    assert image.topics["t"].partitions[0].leader == -1


def test_a_failure_that_is_known_changes_nothing() -> None:
    image = image_of(partition(directories=(A, B)), of_1=(C,), of_2=(B,))
    assert list(directories.fail(image, 1, [A], CONFIG)) == []


def test_a_broker_with_one_directory_has_its_new_replicas_there() -> None:
    image = image_of(partition(), of_1=(A,), of_2=(B, C))
    assert directories.of_new_replicas(image, [1, 2]) == (A, UNASSIGNED)
    assert directories.of_new_replicas(image, [2]) == ()


def test_directories_survive_a_snapshot() -> None:
    image = image_of(partition(directories=(A, B)), of_1=(A,), of_2=(B,))
    again = Image().apply(image.records())
    assert again.topics["t"].partitions[0].directories == (A, B)
    assert again.brokers[1].log_dirs == (A,)
