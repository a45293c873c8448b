"""What the controller decides about settings."""

from __future__ import annotations

import pytest

from tidemark.broker.config import load_config
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.configs import ConfigOperation, alter_config, replace_config
from tidemark.broker.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE, Image
from tidemark.broker.metadata.records import RegisterBrokerRecord, TopicRecord
from tidemark.protocol.errors import ErrorCode

BROKER = load_config()


@pytest.fixture
def image() -> Image:
    return Image().apply([RegisterBrokerRecord(broker_id=0), TopicRecord(name="t", topic_id=bytes(16))])


def test_settings_are_set_and_go_back_to_their_default(image: Image) -> None:
    image = image.apply(
        alter_config(image, TOPIC_RESOURCE, "t", [("retention.ms", ConfigOperation.SET, "5")], broker=BROKER)
    )
    assert image.config_of(TOPIC_RESOURCE, "t") == {"retention.ms": "5"}
    image = image.apply(
        alter_config(image, TOPIC_RESOURCE, "t", [("retention.ms", ConfigOperation.DELETE, None)], broker=BROKER)
    )
    assert image.config_of(TOPIC_RESOURCE, "t") == {}


def test_lists_are_appended_to_and_subtracted_from(image: Image) -> None:
    image = image.apply(
        alter_config(image, TOPIC_RESOURCE, "t", [("cleanup.policy", ConfigOperation.APPEND, "compact")], broker=BROKER)
    )
    assert image.config_of(TOPIC_RESOURCE, "t") == {"cleanup.policy": "delete,compact"}
    image = image.apply(
        alter_config(
            image, TOPIC_RESOURCE, "t", [("cleanup.policy", ConfigOperation.SUBTRACT, "delete")], broker=BROKER
        )
    )
    assert image.config_of(TOPIC_RESOURCE, "t") == {"cleanup.policy": "compact"}


def test_replacing_forgets_what_is_not_named(image: Image) -> None:
    image = image.apply(
        replace_config(image, TOPIC_RESOURCE, "t", {"retention.ms": "5", "segment.ms": "9"}, broker=BROKER)
    )
    image = image.apply(replace_config(image, TOPIC_RESOURCE, "t", {"segment.ms": "9"}, broker=BROKER))
    assert image.config_of(TOPIC_RESOURCE, "t") == {"segment.ms": "9"}


def test_what_does_not_change_is_not_written(image: Image) -> None:
    image = image.apply(replace_config(image, TOPIC_RESOURCE, "t", {"retention.ms": "5"}, broker=BROKER))
    assert replace_config(image, TOPIC_RESOURCE, "t", {"retention.ms": "5"}, broker=BROKER) == []


def test_dynamic_broker_settings_are_for_one_or_all(image: Image) -> None:
    for name in (CLUSTER_DEFAULT, "0"):
        records = alter_config(
            image, BROKER_RESOURCE, name, [("log.retention.ms", ConfigOperation.SET, "7")], broker=BROKER
        )
        assert image.apply(records).config_of(BROKER_RESOURCE, name) == {"log.retention.ms": "7"}


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC_RESOURCE, "t", ("no.such", ConfigOperation.SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC_RESOURCE, "t", ("retention.ms", ConfigOperation.SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC_RESOURCE, "t", ("retention.ms", ConfigOperation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC_RESOURCE, "t", ("retention.ms", ConfigOperation.SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC_RESOURCE, "u", ("retention.ms", ConfigOperation.SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER_RESOURCE, "7", ("log.retention.ms", ConfigOperation.SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "0", ("node.id", ConfigOperation.SET, "1"), ErrorCode.INVALID_REQUEST),
        (99, "t", ("retention.ms", ConfigOperation.SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_changes_are_refused(
    image: Image, kind: int, name: str, change: tuple[str, ConfigOperation, str | None], code: ErrorCode
) -> None:
    with pytest.raises(Refused) as refusal:
        alter_config(image, kind, name, [change], broker=BROKER)
    assert refusal.value.code == code
