from collections.abc import Mapping

from tidemark.broker.config import (
    KEYS,
    TOPIC_KEYS,
    ConfigEntry,
    Source,
    Type,
    describe_broker,
    describe_cluster_default,
    describe_topic,
    load_config,
)


def topic_entries(
    *settings: str,
    cluster: Mapping[str, str] | None = None,
    broker: Mapping[str, str] | None = None,
    topic: Mapping[str, str] | None = None,
) -> dict[str, ConfigEntry]:
    entries = describe_topic(
        load_config(overrides=settings),
        dynamic_cluster=cluster or {},
        dynamic_broker=broker or {},
        topic_overrides=topic or {},
    )
    return {entry.name: entry for entry in entries}


def chain(entry: ConfigEntry) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, int(synonym.source)) for synonym in entry.synonyms]


def test_a_plain_topic_shows_defaults_and_their_broker_settings() -> None:
    entry = topic_entries()["segment.bytes"]
    assert (entry.value, entry.source, entry.is_default) == ("1073741824", Source.DEFAULT_CONFIG, True)
    assert (entry.type, entry.read_only, entry.sensitive) == (Type.INT, False, False)
    assert chain(entry) == [("log.segment.bytes", "1073741824", 5)]


def test_every_layer_shows_in_order_and_the_first_gives_the_value() -> None:
    entry = topic_entries(
        "log.segment.bytes=2000000",
        cluster={"log.segment.bytes": "3000000"},
        broker={"log.segment.bytes": "4000000"},
        topic={"segment.bytes": "5000000"},
    )["segment.bytes"]
    assert (entry.value, entry.source) == ("5000000", Source.DYNAMIC_TOPIC_CONFIG)
    assert chain(entry) == [
        ("segment.bytes", "5000000", 1),
        ("log.segment.bytes", "4000000", 2),
        ("log.segment.bytes", "3000000", 3),
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_retention_in_hours_counts_but_is_no_synonym_as_in_kafka() -> None:
    entry = topic_entries("log.retention.hours=24")["retention.ms"]
    assert (entry.value, entry.source, chain(entry)) == ("86400000", Source.DEFAULT_CONFIG, [])
    entry = topic_entries("log.retention.hours=24", cluster={"log.retention.ms": "888888"})["retention.ms"]
    assert (entry.value, entry.source) == ("888888", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert chain(entry) == [
        ("log.retention.ms", "888888", 3),
        ("log.retention.hours", "24", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_a_topic_shows_all_but_internal_settings_unless_set() -> None:
    assert set(topic_entries()) == set(TOPIC_KEYS) - {"internal.segment.bytes"}
    assert topic_entries(topic={"internal.segment.bytes": "99"})["internal.segment.bytes"].value == "99"


def test_values_are_printed_as_kafka_prints_them() -> None:
    entries = topic_entries(topic={"cleanup.policy": "compact , delete", "preallocate": "True"})
    assert entries["cleanup.policy"].value == "compact,delete"
    assert entries["preallocate"].value == "true"
    assert entries["min.cleanable.dirty.ratio"].value == "0.5"
    assert entries["leader.replication.throttled.replicas"].value == ""


def test_names_limit_what_is_described() -> None:
    entries = describe_topic(
        load_config(), dynamic_cluster={}, dynamic_broker={}, topic_overrides={}, names=["flush.ms", "nothing"]
    )
    assert [entry.name for entry in entries] == ["flush.ms"]


def test_a_broker_shows_its_settings_with_sources() -> None:
    entries = {
        entry.name: entry
        for entry in describe_broker(
            load_config(overrides=["node.id=3"]),
            dynamic_cluster={"max.connections": "9"},
            dynamic_broker={"log.retention.ms": "5"},
        )
    }
    assert set(entries) == {name for name, key in KEYS.items() if not key.internal}
    assert (entries["node.id"].value, entries["node.id"].source) == ("3", Source.STATIC_BROKER_CONFIG)
    assert entries["node.id"].read_only
    assert not entries["max.connections"].read_only
    assert chain(entries["max.connections"]) == [("max.connections", "9", 3), ("max.connections", "2147483647", 5)]
    assert entries["log.retention.ms"].source is Source.DYNAMIC_BROKER_CONFIG
    assert (entries["log.roll.ms"].value, chain(entries["log.roll.ms"])) == (None, [])


def test_the_cluster_default_shows_only_what_was_set() -> None:
    [entry] = describe_cluster_default(dynamic_cluster={"max.connections": "9"})
    assert (entry.name, entry.value, entry.source) == ("max.connections", "9", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert chain(entry) == [("max.connections", "9", 3)]


def test_every_setting_has_a_sentence_of_documentation() -> None:
    for key in [*KEYS.values(), *TOPIC_KEYS.values()]:
        assert key.doc.endswith("."), key.name
