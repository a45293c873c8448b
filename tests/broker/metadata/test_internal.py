"""The brokers' own topics can be created with whatever the settings allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.config import KEYS, ConfigError, load_config
from tidemark.broker.config.key import Between
from tidemark.broker.core.sliced_work import at_once
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.internal import offsets_topic, transactions_topic
from tidemark.broker.metadata.records import RegisterBrokerRecord
from tidemark.broker.metadata.topics import NewTopic, create_topics

IMAGE = Image().apply([RegisterBrokerRecord(broker_id=1, broker_epoch=1)])
TOPICS: dict[str, Callable[..., NewTopic]] = {
    "offsets.topic.": offsets_topic,
    "transaction.state.log.": transactions_topic,
}
CASES = [(prefix, name) for prefix in TOPICS for name in KEYS if name.startswith(prefix) and "codec" not in name]


def bounds_of(name: str) -> list[int]:
    check: Any = KEYS[name].check
    assert isinstance(check, Between)
    high = check.high if check.high is not None else (1 << 15) - 1 if "factor" in name else (1 << 31) - 1
    return [int(check.low), int(high)]


@pytest.mark.parametrize(("prefix", "name"), CASES)
def test_a_coordinator_s_topic_can_be_created_with_any_value_that_the_start_accepts(prefix: str, name: str) -> None:
    for value in bounds_of(name):
        config = load_config(overrides={name: str(value)})
        topic = TOPICS[prefix](IMAGE, config, topic_id=bytes(range(16)))
        records, refused = at_once(create_topics(IMAGE, [topic], config))
        assert not refused, f"{name}={value}: {refused}"
        assert records


@pytest.mark.parametrize("prefix", TOPICS)
def test_a_segment_smaller_than_a_topic_may_have_is_refused_at_the_start(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"segment\.bytes: .*at least 1048576"):
        load_config(overrides={f"{prefix}segment.bytes": "1048575"})
