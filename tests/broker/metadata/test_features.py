"""Features: what the cluster may write is what every broker can read."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest

from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.features import (
    OUR_METADATA_VERSION,
    SUPPORTED,
    check_broker,
    check_level,
    check_security_level,
    finalized,
    may_write_directory_ids,
    new_cluster,
)
from tidemark.broker.metadata.image import BrokerImage, Image
from tidemark.broker.metadata.records import (
    ClusterRecord,
    FeatureLevelRecord,
    FeatureRange,
    RegisterBrokerRecord,
    TopicRecord,
    UnknownMetadataRecord,
    decode_records,
    encode_records,
)
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode

NEW = [FeatureRange(name=name, min_version=low, max_version=high) for name, (low, high) in SUPPORTED.items()]
OLD = [FeatureRange(name="transaction.version", min_version=0, max_version=2)]


def registered(**builds: list[FeatureRange]) -> Image:
    """A cluster of an earlier build, in which these brokers are registered now."""
    brokers = [RegisterBrokerRecord(broker_id=int(name[1:]), features=each) for name, each in builds.items()]
    return Image().apply([ClusterRecord(cluster_id="c"), *brokers])


def test_a_cluster_that_is_upgraded_goes_on_at_its_level_until_an_operator_raises_it() -> None:
    """Its nodes could not be downgraded again otherwise."""
    mixed = registered(b1=NEW, b2=OLD)
    assert finalized(mixed)[OUR_METADATA_VERSION] == 1
    with pytest.raises(Refused, match="Broker 2 only supports versions 0-1"):
        check_level(mixed, OUR_METADATA_VERSION, 2, may_lower=False)
    upgraded = registered(b1=NEW, b2=NEW)
    assert finalized(upgraded)[OUR_METADATA_VERSION] == 1
    assert not may_write_directory_ids(upgraded)
    check_level(upgraded, OUR_METADATA_VERSION, 2, may_lower=False)
    raised = upgraded.apply([FeatureLevelRecord(name=OUR_METADATA_VERSION, level=2)])
    assert may_write_directory_ids(raised)


def test_what_only_newer_brokers_can_read_is_refused_until_the_level_is_raised() -> None:
    upgraded = registered(b1=NEW, b2=NEW)
    with pytest.raises(Refused, match="raise it with UpdateFeatures"):
        check_security_level(upgraded)
    check_security_level(upgraded.apply([FeatureLevelRecord(name=OUR_METADATA_VERSION, level=3)]))


def test_a_new_cluster_uses_the_newest_levels_from_its_first_record_on() -> None:
    image = Image().apply(new_cluster("c"))
    assert image.cluster_id == "c"
    assert finalized(image) == {name: high for name, (_, high) in SUPPORTED.items()}
    assert may_write_directory_ids(image)


def test_before_a_cluster_has_begun_nothing_new_is_written() -> None:
    assert not may_write_directory_ids(Image())


def test_a_broker_that_cannot_do_what_the_cluster_uses_is_not_let_in() -> None:
    image = Image().apply(new_cluster("c"))
    check_broker(image, broker_of(NEW))
    with pytest.raises(Refused, match=r"uses metadata\.version 27, and broker 7 can do 0 to 25") as refused:
        check_broker(image, broker_of(OLD))
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
    of_the_future = image.apply([FeatureLevelRecord(name="of.the.future", level=3)])
    with pytest.raises(Refused, match=r"of\.the\.future"):
        check_broker(of_the_future, broker_of(NEW))
    check_broker(registered(), broker_of(OLD))


def broker_of(features: list[FeatureRange]) -> BrokerImage:
    return Image().apply([RegisterBrokerRecord(broker_id=7, features=features)]).brokers[7]


@pytest.mark.parametrize(
    ("name", "level", "may_lower", "reason"),
    [
        ("no.such", 1, False, "This controller does not support this feature"),
        ("metadata.version", 99, False, "This controller only supports versions 7-27"),
        ("metadata.version", 6, True, "This controller only supports versions 7-27"),
        ("metadata.version", 25, True, "cannot be taken back"),
        (OUR_METADATA_VERSION, 1, True, "cannot be taken back"),
        ("kraft.version", 0, True, "cannot be taken back"),
        ("transaction.version", 1, False, "only by a downgrade"),
    ],
)
def test_a_level_is_refused_with_the_reason(name: str, level: int, may_lower: bool, reason: str) -> None:
    image = Image().apply([*new_cluster("c"), RegisterBrokerRecord(broker_id=1, features=NEW)])
    with pytest.raises(Refused, match=reason) as refused:
        check_level(image, name, level, may_lower=may_lower)
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_feature_that_nobody_knows_can_be_turned_off_as_in_kafka() -> None:
    """A release's levels, as Kafka's FeatureCommand sends them, name features that this software does not have at 0."""
    check_level(Image().apply(new_cluster("c")), "share.version", 0, may_lower=False)


def test_a_level_is_raised_by_an_upgrade_only() -> None:
    image = Image().apply([*new_cluster("c"), FeatureLevelRecord(name="transaction.version", level=1)])
    check_level(image, "transaction.version", 2, may_lower=False)
    with pytest.raises(Refused, match="only by an upgrade"):
        check_level(image, "transaction.version", 2, may_lower=True)
    check_level(image, "transaction.version", 0, may_lower=True)


@pytest.mark.parametrize(("key", "version"), [(999, 0), (2, 7)])
def test_a_record_of_a_newer_version_is_refused_with_a_sentence_that_says_what_to_do(key: int, version: int) -> None:
    known = encode_records([TopicRecord(name="t", topic_id=bytes(16))])
    with pytest.raises(UnknownMetadataRecord, match="newer version"):
        list(decode_records(known + struct.pack(">HBI", key, version, 0)))


async def test_a_node_stops_at_a_record_of_a_newer_version_and_starts_again_where_it_is_known(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    store = MetadataStore(tmp_path, node_id=1, failed=failures.append)
    await store.start()
    await store.driver.propose(encode_records([TopicRecord(name="t", topic_id=bytes(16))]))
    with contextlib.suppress(Exception):  # the driver ends before it can say that this one is applied
        await store.driver.propose(struct.pack(">HBI", 999, 0, 0))
    await store.close()
    again = MetadataStore(tmp_path, node_id=1, failed=failures.append)
    await again.start()
    assert isinstance(failures[-1], UnknownMetadataRecord), failures
    await again.close()
