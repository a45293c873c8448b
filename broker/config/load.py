"""From a file and the command line to a BrokerConfig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tidemark.broker.config.broker import KEYS, BrokerConfig, broker_key
from tidemark.broker.config.errors import ConfigError
from tidemark.broker.config.files import ConfigFile, read_config_file
from tidemark.broker.config.kafka_names import is_kafka_name
from tidemark.broker.config.key import Key
from tidemark.broker.config.listener_overrides import overridden_key, without_listener

CLUSTER_OF_MANY = 3


def load_config(path: Path | None = None, overrides: Sequence[str] | Mapping[str, Any] = ()) -> BrokerConfig:
    """The defaults, then what the file says, then the overrides (`key=value` texts, or a mapping)."""
    file = read_config_file(path) if path is not None else ConfigFile(values={}, is_properties=False)
    ignored = [name for name in file.values if file.is_properties and not _is_served(name) and is_kafka_name(name)]
    explicit = {name: text for name, text in file.values.items() if name not in ignored} | override_values(overrides)
    config = _from_texts(explicit, warnings=tuple(_about_ignored(path, ignored)))
    config.check()
    return replace(config, warnings=(*config.warnings, *_about_strays(config), *_about_exposure(config)))


def override_values(overrides: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    """Overrides by name, as texts."""
    if isinstance(overrides, Mapping):
        return {name: as_text(name, value) for name, value in overrides.items()}
    values = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{text!r} is not a setting; it must be key=value.", value=text)
        values[name.strip()] = value.strip()
    return values


def as_text(name: str, value: Any) -> str:
    """A value out of Python or YAML in the form that a properties file has."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float | Path):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(as_text(name, item) for item in value)
    if isinstance(value, dict) and name in KEYS and KEYS[name].composite:
        import json

        return json.dumps({str(each): as_text(name, secret) for each, secret in value.items()})
    shown = "a secret" if name in KEYS and KEYS[name].sensitive else repr(value)
    raise ConfigError(f"{name}: {shown} is not allowed; it must be a plain value or a list of them.", key=name)


def _from_texts(explicit: Mapping[str, str], *, warnings: tuple[str, ...]) -> BrokerConfig:
    values: dict[str, Any] = {}
    overrides: dict[str, str] = {}
    for name, text in explicit.items():
        key = _served_key(name)
        value = key.parse(text)
        if name in KEYS:
            values[key.attribute] = value
        else:
            overrides[name] = text
    if "broker_id" in values and "node_id" not in values:
        values["node_id"] = KEYS["node.id"].parse(explicit["broker.id"])
    values["broker_id"] = values.get("node_id", KEYS["node.id"].default)
    if "log_dir" in values and "log_dirs" not in values:
        values["log_dirs"] = values["log_dir"]
    if "min_insync_replicas" not in values and len(values.get("controller_quorum_voters", ())) >= CLUSTER_OF_MANY:
        # One replica more than the leader must have a record before it counts: else a failover may lose it.
        values["min_insync_replicas"] = 2
    return BrokerConfig(
        **values,
        explicit=MappingProxyType(dict(explicit)),
        overrides=MappingProxyType(overrides),
        warnings=warnings,
    )


def _is_served(name: str) -> bool:
    return name in KEYS or overridden_key(name, KEYS) is not None


def _served_key(name: str) -> Key:
    if not _is_served(name) and is_kafka_name(name):
        raise ConfigError(f"{name}: Kafka has this setting, Tidemark does not (yet).", key=name)
    return broker_key(name)


def _about_ignored(path: Path | None, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"{path}: ignored, because Kafka has these settings and Tidemark does not (yet): {', '.join(names)}."]


def _about_exposure(config: BrokerConfig) -> list[str]:
    if config.explicit.keys().isdisjoint(("listeners", "listener.security.protocol.map", "http.listeners")):
        return []  # the default is on loopback: nothing to load, and nothing to say
    from tidemark.broker.config.exposure import about_open_listeners

    return about_open_listeners(config)


def _about_strays(config: BrokerConfig) -> list[str]:
    controllers = config.parsed_controller_listener
    opened = [*config.parsed_listeners, *config.parsed_http_listeners, *([] if controllers is None else [controllers])]
    names = [each.name for each in opened]
    strays = without_listener(config.overrides, [*names, *config.controller_listener_names])
    return (
        [f"no listener has the name in these settings, so they change nothing: {', '.join(strays)}."] if strays else []
    )
