"""Settings as a DescribeConfigs answer shows them: value, source, and the chain of settings that could supply it.

Plain values only; the handler turns them into messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tidemark.broker.config.broker import KEYS, BrokerConfig, broker_key
from tidemark.broker.config.client_metrics import CLIENT_METRICS_KEYS
from tidemark.broker.config.group import GROUP_KEYS
from tidemark.broker.config.key import Key, Type, Value
from tidemark.broker.config.listener_overrides import plain_name
from tidemark.broker.config.topic import TOPIC_KEYS, inherited


class Source(IntEnum):
    """Where a value comes from; the numbers are Kafka's."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A setting that supplies, or would supply, a value."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting as DescribeConfigs shows it."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: Type
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT_CONFIG


# Settings that stand in for one another on a broker, in the order in which they are looked at.
FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def describe_topic(
    broker: BrokerConfig,
    *,
    dynamic_cluster: Mapping[str, str],
    dynamic_broker: Mapping[str, str],
    topic_overrides: Mapping[str, str],
    names: Collection[str] | None = None,
) -> list[ConfigEntry]:
    """Every setting of a topic, or those in `names`. `broker` is what the broker started with."""
    layers = _layers(broker, dynamic_cluster=dynamic_cluster, dynamic_broker=dynamic_broker)
    current = broker.with_values({**dynamic_cluster, **dynamic_broker})
    keys = _wanted(TOPIC_KEYS, names=names, explicit=topic_overrides)
    return _overlaid(keys, topic_overrides, current, layers, source=Source.DYNAMIC_TOPIC_CONFIG)


def describe_group(
    broker: BrokerConfig,
    *,
    dynamic_cluster: Mapping[str, str],
    dynamic_broker: Mapping[str, str],
    group_overrides: Mapping[str, str],
    names: Collection[str] | None = None,
) -> list[ConfigEntry]:
    """Every setting of a group, or those in `names`. `broker` is what the broker started with."""
    layers = _layers(broker, dynamic_cluster=dynamic_cluster, dynamic_broker=dynamic_broker)
    current = broker.with_values({**dynamic_cluster, **dynamic_broker})
    keys = _wanted(GROUP_KEYS, names=names, explicit=group_overrides)
    return _overlaid(keys, group_overrides, current, layers, source=Source.GROUP_CONFIG)


def describe_client_metrics(overrides: Mapping[str, str], *, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Every setting of a subscription to clients' metrics, or those in `names`."""
    entries = []
    for key in _wanted(CLIENT_METRICS_KEYS, names=names, explicit=overrides):
        text = overrides.get(key.name)
        chain = [] if text is None else [_synonym(key, text, source=Source.DYNAMIC_CLIENT_METRICS_CONFIG)]
        entries.append(_entry(key, key.default if text is None else key.parse(text), chain))
    return entries


def describe_broker(
    broker: BrokerConfig,
    *,
    dynamic_cluster: Mapping[str, str],
    dynamic_broker: Mapping[str, str],
    names: Collection[str] | None = None,
) -> list[ConfigEntry]:
    """Every setting of one broker, or those in `names`. `broker` is what it started with."""
    layers = _layers(broker, dynamic_cluster=dynamic_cluster, dynamic_broker=dynamic_broker)
    current = broker.with_values({**dynamic_cluster, **dynamic_broker})
    plain = [
        _entry(key, getattr(current, key.attribute), _chain(key.name, layers))
        for key in _wanted(KEYS, names=names, explicit=current.explicit)
    ]
    return plain + [
        _entry(key, key.parse(current.overrides[key.name]), _chain(key.name, layers))
        for key in map(broker_key, sorted(current.overrides))
        if names is None or key.name in names
    ]


def describe_cluster_default(
    *, dynamic_cluster: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The settings given to all brokers at once: only those that were set."""
    layers = [(Source.DYNAMIC_DEFAULT_BROKER_CONFIG, dynamic_cluster)]
    keys = (broker_key(name) for name in sorted(dynamic_cluster) if names is None or name in names)
    return [_entry(key, key.parse(dynamic_cluster[key.name]), _chain(key.name, layers)) for key in keys]


_Layer = tuple[Source, Mapping[str, str]]
_DEFAULTS = {name: text for name, key in KEYS.items() if (text := key.format(key.default)) is not None}


def _layers(
    broker: BrokerConfig, *, dynamic_cluster: Mapping[str, str], dynamic_broker: Mapping[str, str]
) -> list[_Layer]:
    return [
        (Source.DYNAMIC_BROKER_CONFIG, dynamic_broker),
        (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, dynamic_cluster),
        (Source.STATIC_BROKER_CONFIG, broker.explicit),
        (Source.DEFAULT_CONFIG, _DEFAULTS),
    ]


def _wanted(keys: Mapping[str, Key], *, names: Collection[str] | None, explicit: Mapping[str, str]) -> Iterator[Key]:
    for name, key in keys.items():
        if names is None and key.internal and name not in explicit:
            continue
        if names is None or name in names:
            yield key


def _overlaid(
    keys: Iterable[Key], overrides: Mapping[str, str], broker: BrokerConfig, layers: list[_Layer], *, source: Source
) -> list[ConfigEntry]:
    """Settings that take their value from the broker's where they are not overridden."""
    entries = []
    for key in keys:
        overridden = key.name in overrides
        value = key.parse(overrides[key.name]) if overridden else inherited(key, broker)
        chain = _chain(key.synonyms[0].name, layers) if key.synonyms else []
        if overridden:
            chain.insert(0, _synonym(key, key.format(value), source=source))
        entries.append(_entry(key, value, chain))
    return entries


def _chain(name: str, layers: list[_Layer]) -> list[ConfigSynonym]:
    family = next((names for names in FAMILIES if name in names), dict.fromkeys((name, plain_name(name, KEYS))))
    found = [
        _synonym(broker_key(member), texts[member], source=source)
        for source, texts in layers
        for member in family
        if member in texts
    ]
    # As Kafka does: what stands before the first setting of the asked name is not shown.
    first = next((i for i, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


def _synonym(key: Key, text: str | None, *, source: Source) -> ConfigSynonym:
    return ConfigSynonym(name=key.name, value=None if key.sensitive else text, source=source)


def _entry(key: Key, value: Value, chain: list[ConfigSynonym]) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=key.format(value),
        source=chain[0].source if chain else Source.DEFAULT_CONFIG,
        read_only=key.read_only,
        sensitive=key.sensitive,
        type=key.type,
        documentation=key.doc,
        synonyms=tuple(chain),
    )
