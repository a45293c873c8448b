import pytest

from tidemark.broker.config import (
    KEYS,
    TOPIC_KEYS,
    ConfigError,
    TopicConfig,
    load_config,
    validate_topic_config,
    validate_topic_configs,
)
from tidemark.broker.config.topic import inherited

DEFAULTS = load_config()


def test_every_default_is_what_the_default_broker_gives() -> None:
    for key in TOPIC_KEYS.values():
        assert inherited(key, DEFAULTS) == key.default, key.name


def test_every_topic_setting_with_a_broker_default_names_existing_settings() -> None:
    for key in TOPIC_KEYS.values():
        assert all(synonym.name in KEYS for synonym in key.synonyms), key.name


def test_the_first_time_setting_that_is_set_decides_retention() -> None:
    def retention(*settings: str) -> int:
        return TopicConfig.resolve(load_config(overrides=settings), {}).retention_ms

    assert retention() == 604_800_000
    assert retention("log.retention.hours=2") == 7_200_000
    assert retention("log.retention.hours=2", "log.retention.minutes=3") == 180_000
    assert retention("log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4") == 4
    assert retention("log.retention.hours=-1") == -1


def test_rolling_and_flushing_inherit_through_their_own_chains() -> None:
    broker = load_config(overrides=["log.roll.hours=1", "log.roll.jitter.hours=2", "log.flush.scheduler.interval.ms=9"])
    config = TopicConfig.resolve(broker, {})
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (3_600_000, 7_200_000, 9)


def test_overrides_win_and_are_typed() -> None:
    overrides = {
        "cleanup.policy": "compact, delete",
        "retention.ms": "-1",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.1",
        "preallocate": "TRUE",
        "message.timestamp.type": "LogAppendTime",
    }
    config = TopicConfig.resolve(DEFAULTS, overrides)
    assert config.cleanup_policy == frozenset({"compact", "delete"})
    assert (config.retention_ms, config.segment_bytes, config.min_cleanable_dirty_ratio) == (-1, 1 << 20, 0.1)
    assert config.preallocate is True
    assert config.message_timestamp_type == "LogAppendTime"


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    assert TopicConfig.resolve(DEFAULTS, {"cleanup.policy": ""}).cleanup_policy == frozenset()


def test_tiny_segments_are_to_be_had_by_the_internal_setting_only() -> None:
    assert TopicConfig.resolve(DEFAULTS, {"internal.segment.bytes": "100"}).segment_bytes == 100
    with pytest.raises(ConfigError, match="1048576"):
        validate_topic_config("segment.bytes", "100")


@pytest.mark.parametrize("value", ["*", "", "0:1", "0:1,2:3"])
def test_throttled_replicas_have_kafkas_form(value: str) -> None:
    validate_topic_config("leader.replication.throttled.replicas", value)
    with pytest.raises(ConfigError, match="partition:broker"):
        validate_topic_config("leader.replication.throttled.replicas", value + ",x")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("retention.mss", "1", "no such topic setting (did you mean retention.ms?)"),
        ("retention.ms", "-2", "at least -1"),
        ("cleanup.policy", "Delete", "'Delete' is not allowed"),
        ("compression.gzip.level", "0", "from 1 to 9 or -1"),
        ("remote.storage.enable", "true", "must be false"),
    ],
)
def test_a_bad_topic_setting_says_what_is_allowed(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_config(name, value)
    assert says in str(caught.value)
    assert caught.value.key == name


def test_settings_that_contradict_each_other_are_refused() -> None:
    validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, broker=DEFAULTS)
    with pytest.raises(ConfigError, match=r"at most max\.compaction\.lag\.ms"):
        validate_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, broker=DEFAULTS)
