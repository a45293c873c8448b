"""The settings that one consumer group can have for itself (KIP-848); the broker's hold for all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.broker.config.errors import ConfigError, did_you_mean
from tidemark.broker.config.key import Between, Key, Scope, Synonym, integer, keys_of
from tidemark.broker.config.topic import inherited

if TYPE_CHECKING:
    from tidemark.broker.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    consumer_session_timeout_ms: int = integer(
        45_000,
        "How many milliseconds a member of the group may go without a heartbeat before it is taken out of the group.",
        check=Between(1),
        scope=Scope.GROUP,
        synonyms=(Synonym(name="group.consumer.session.timeout.ms"),),
    )
    consumer_heartbeat_interval_ms: int = integer(
        5_000,
        "How many milliseconds the members of the group wait between two heartbeats.",
        check=Between(1),
        scope=Scope.GROUP,
        synonyms=(Synonym(name="group.consumer.heartbeat.interval.ms"),),
    )

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
        """`overrides` are valid."""
        values = {
            key.attribute: key.parse(overrides[name]) if name in overrides else inherited(key, broker)
            for name, key in GROUP_KEYS.items()
        }
        return cls(**values)  # type: ignore[arg-type]


GROUP_KEYS: Mapping[str, Key] = keys_of(GroupConfig)


def group_key(name: str) -> Key:
    """The group setting of that name, or a ConfigError."""
    try:
        return GROUP_KEYS[name]
    except KeyError:
        hint = did_you_mean(name, GROUP_KEYS)
        raise ConfigError(f"{name}: there is no such group setting{hint}.", key=name) from None


def validate_group_configs(overrides: Mapping[str, str], *, broker: BrokerConfig) -> None:
    """Raise a ConfigError unless a group may have all these settings at once."""
    for name, value in overrides.items():
        group_key(name).parse(value)
    resolved = GroupConfig.resolve(broker, overrides)
    if "consumer.session.timeout.ms" in overrides:
        _check_range(
            "consumer.session.timeout.ms",
            resolved.consumer_session_timeout_ms,
            low=broker.group_consumer_min_session_timeout_ms,
            high=broker.group_consumer_max_session_timeout_ms,
        )
    if "consumer.heartbeat.interval.ms" in overrides:
        _check_range(
            "consumer.heartbeat.interval.ms",
            resolved.consumer_heartbeat_interval_ms,
            low=broker.group_consumer_min_heartbeat_interval_ms,
            high=broker.group_consumer_max_heartbeat_interval_ms,
        )
    if resolved.consumer_session_timeout_ms <= resolved.consumer_heartbeat_interval_ms:
        raise ConfigError(
            f"consumer.session.timeout.ms: '{resolved.consumer_session_timeout_ms}' is not allowed; it must be greater "
            f"than consumer.heartbeat.interval.ms, which is {resolved.consumer_heartbeat_interval_ms}.",
            key="consumer.session.timeout.ms",
            value=str(resolved.consumer_session_timeout_ms),
        )


def _check_range(name: str, value: int, *, low: int, high: int) -> None:
    kind = name.removeprefix("consumer.")
    if value < low:
        problem = f"it must be at least group.consumer.min.{kind}, which is {low}"
    elif value > high:
        problem = f"it must be at most group.consumer.max.{kind}, which is {high}"
    else:
        return
    raise ConfigError(f"{name}: '{value}' is not allowed; {problem}.", key=name, value=str(value))
