"""min.insync.replicas is one value for the cluster, and a change of it ends the eligibility that rests on it."""

from __future__ import annotations

import pytest

from tidemark.broker.config import load_config
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.brokers import fence, topic_rules
from tidemark.broker.metadata.configs import ConfigOperation, alter_config, replace_config
from tidemark.broker.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    TOPIC_RESOURCE,
    Image,
    PartitionImage,
    partition_record,
)
from tidemark.broker.metadata.min_isr import write_cluster_value
from tidemark.broker.metadata.records import ConfigRecord, RegisterBrokerRecord, TopicRecord
from tidemark.protocol.errors import ErrorCode

CONFIG = load_config(overrides={"min.insync.replicas": 2})
KEY = "min.insync.replicas"
SET_TO_1 = [(KEY, ConfigOperation.SET, "1")]


@pytest.fixture
def image() -> Image:
    """Of `t` only broker 1 is in sync, and broker 2 is eligible, because nothing was committed without it."""
    image = Image().apply(
        [
            RegisterBrokerRecord(broker_id=1),
            RegisterBrokerRecord(broker_id=2),
            ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=CLUSTER_DEFAULT, name=KEY, value="2"),
            TopicRecord(name="t", topic_id=b"t" * 16),
            TopicRecord(name="own", topic_id=b"o" * 16),
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="own", name=KEY, value="2"),
        ]
    )
    partition = PartitionImage(replicas=(1, 2), isr=(1,), leader=1, leader_epoch=3, partition_epoch=5, elr=(2,))
    return image.apply([partition_record(b"t" * 16, 0, partition), partition_record(b"o" * 16, 0, partition)])


def eligible(image: Image, topic: str = "t") -> tuple[int, ...]:
    return image.topics[topic].partitions[0].elr


def test_no_broker_stays_eligible_when_a_topic_gets_another_min_isr(image: Image) -> None:
    after = image.apply(alter_config(image, TOPIC_RESOURCE, "t", SET_TO_1, broker=CONFIG))
    assert eligible(after) == ()
    partition = after.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 3, 6)


def test_the_leader_that_committed_alone_is_not_replaced_by_one_that_lacks_its_records(image: Image) -> None:
    image = image.apply(alter_config(image, TOPIC_RESOURCE, "t", SET_TO_1, broker=CONFIG))
    image = image.apply(fence(image, 1, CONFIG))  # the leader dies, after it has committed alone
    assert image.topics["t"].partitions[0].leader == -1


def test_who_is_eligible_stays_so_while_nobody_leads(image: Image) -> None:
    """Seed 13 of the simulation: nothing is committed without a leader, and without them there was never one again."""
    down = PartitionImage(
        replicas=(1, 2), isr=(), leader=-1, leader_epoch=4, partition_epoch=6, elr=(1,), last_known_elr=(1,)
    )
    image = image.apply([partition_record(b"t" * 16, 0, down)])
    after = image.apply(alter_config(image, TOPIC_RESOURCE, "t", SET_TO_1, broker=CONFIG))
    assert after.topics["t"].partitions[0] == down


def test_a_new_default_of_the_cluster_counts_for_topics_without_a_value_of_their_own(image: Image) -> None:
    after = image.apply(alter_config(image, BROKER_RESOURCE, CLUSTER_DEFAULT, SET_TO_1, broker=CONFIG))
    assert eligible(after) == ()
    assert eligible(after, "own") == (2,)


def test_also_when_a_topic_goes_back_to_the_default(image: Image) -> None:
    after = image.apply(
        alter_config(image, TOPIC_RESOURCE, "own", [(KEY, ConfigOperation.DELETE, None)], broker=CONFIG)
    )
    assert eligible(after, "own") == ()
    replaced = image.apply(replace_config(image, TOPIC_RESOURCE, "own", {}, broker=CONFIG))
    assert eligible(replaced, "own") == ()


def test_other_settings_leave_the_eligible_alone(image: Image) -> None:
    records = alter_config(image, TOPIC_RESOURCE, "t", [("retention.ms", ConfigOperation.SET, "5")], broker=CONFIG)
    assert eligible(image.apply(records)) == (2,)


def test_one_broker_cannot_have_a_value_of_its_own(image: Image) -> None:
    with pytest.raises(Refused, match="cluster") as refused:
        alter_config(image, BROKER_RESOURCE, "1", SET_TO_1, broker=CONFIG)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_the_value_of_the_cluster_can_be_changed_but_not_removed(image: Image) -> None:
    with pytest.raises(Refused, match="removed") as refused:
        alter_config(image, BROKER_RESOURCE, CLUSTER_DEFAULT, [(KEY, ConfigOperation.DELETE, None)], broker=CONFIG)
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(Refused, match="removed"):
        replace_config(image, BROKER_RESOURCE, CLUSTER_DEFAULT, {}, broker=CONFIG)


def test_a_controller_writes_its_own_value_into_metadata_that_have_none_and_removes_those_of_brokers() -> None:
    old = Image().apply([ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=KEY, value="3")])
    after = old.apply(write_cluster_value(old, CONFIG))
    assert after.config_of(BROKER_RESOURCE, CLUSTER_DEFAULT) == {KEY: "2"}
    assert after.config_of(BROKER_RESOURCE, "1") == {}
    assert write_cluster_value(after, load_config(overrides={KEY: 1})) == []


def test_controllers_with_different_files_decide_alike(image: Image) -> None:
    rules = {topic_rules(image, "t", load_config(overrides={KEY: value})).min_isr for value in (1, 2, 3)}
    assert rules == {2}
