"""The settings of one broker: the table of `BrokerSettings` with what is parsed out of it, and its checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tidemark.broker.config.broker_settings import BrokerSettings
from tidemark.broker.config.errors import ConfigError, did_you_mean
from tidemark.broker.config.key import Key, Scope, keys_of
from tidemark.broker.config.listener_overrides import overridden_key, overrides_of
from tidemark.broker.config.listeners import (
    Listener,
    Voter,
    advertised_http_listeners,
    advertised_listeners,
    client_listeners,
    controller_listener,
    http_listeners,
    inter_broker_listener,
    server_addresses,
    voter_addresses,
)
from tidemark.broker.config.topic import TOPIC_KEYS, TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BrokerConfig(BrokerSettings):
    """The settings of one broker, typed. Make one with `load_config`."""

    explicit: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the user set (file and overrides), by Kafka name, as written."""
    overrides: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What is set for single listeners, by full name: `listener.name.…`. `of_listener` applies it."""
    warnings: tuple[str, ...] = ()
    """What the user should know about the configuration, one sentence each."""
    _topic_defaults: TopicConfig | None = field(default=None, init=False)

    @property
    def topic_defaults(self) -> TopicConfig:
        """The settings of topics that override nothing. Asked for thousands of times in a row, so it is kept."""
        if self._topic_defaults is None:
            object.__setattr__(self, "_topic_defaults", TopicConfig.inherit(self))
        assert self._topic_defaults is not None
        return self._topic_defaults

    @property
    def parsed_listeners(self) -> tuple[Listener, ...]:
        """The listeners to open for clients."""
        return client_listeners(
            self.listeners, protocols=self.listener_security_protocol_map, without=self.controller_listener_names
        )

    @property
    def parsed_advertised_listeners(self) -> tuple[Listener, ...]:
        """The addresses to tell clients, by listener name; port 0 stands for the port that was bound."""
        return advertised_listeners(
            self.advertised_listeners,
            opened=self.parsed_listeners,
            protocols=self.listener_security_protocol_map,
            without=self.controller_listener_names,
        )

    @property
    def parsed_controller_listener(self) -> Listener | None:
        """The listener for the cluster's own traffic; without one the node is a cluster of its own."""
        return controller_listener(
            self.listeners, protocols=self.listener_security_protocol_map, names=self.controller_listener_names
        )

    @property
    def parsed_http_listeners(self) -> tuple[Listener, ...]:
        if not self.http_listeners:
            return ()
        controllers = self.parsed_controller_listener
        opened = [*self.parsed_listeners, *([] if controllers is None else [controllers])]
        return http_listeners(self.http_listeners, protocols=self.listener_security_protocol_map, opened=opened)

    @property
    def parsed_http_advertised_listeners(self) -> tuple[Listener, ...]:
        return advertised_http_listeners(
            self.http_advertised_listeners,
            opened=self.parsed_http_listeners,
            protocols=self.listener_security_protocol_map,
        )

    @property
    def parsed_controller_voters(self) -> tuple[Voter, ...]:
        return voter_addresses(self.controller_quorum_voters)

    @property
    def parsed_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        return server_addresses("controller.quorum.bootstrap.servers", self.controller_quorum_bootstrap_servers)

    @property
    def parsed_inter_broker_listener_name(self) -> str:
        return inter_broker_listener(
            self.parsed_listeners, name=self.inter_broker_listener_name, protocol=self.security_inter_broker_protocol
        )

    @property
    def parsed_max_connections_per_ip_overrides(self) -> Mapping[str, int]:
        """The limits of single addresses or host names."""
        return parse_connection_limits(self.max_connections_per_ip_overrides)

    @property
    def takes_telemetry(self) -> bool:
        """Whether clients may be asked for metrics (KIP-714): where somebody can see them."""
        return bool(self.http_listeners or self.tidemark_telemetry_otlp_endpoint)

    @property
    def parsed_super_users(self) -> frozenset[str]:
        users = frozenset(filter(None, (user.strip() for user in self.super_users.split(";"))))
        for user in users:
            kind, colon, name = user.partition(":")
            if not kind or not colon or not name:
                raise ConfigError(f"super.users: {user} is not like User:name.", key="super.users", value=user)
        return users

    def with_values(self, changes: Mapping[str, str]) -> BrokerConfig:
        """This configuration with some dynamic settings changed; `explicit` still says what was set at the start."""
        for name in changes:
            validate_broker_config(name, changes[name])
        plain = {name: text for name, text in changes.items() if name in KEYS}
        overrides = {**self.overrides, **{name: text for name, text in changes.items() if name not in KEYS}}
        changed = replace(self._with_parsed(plain), overrides=MappingProxyType(overrides))
        changed.check()
        return changed

    def of_listener(self, name: str, *, mechanism: str | None = None) -> BrokerConfig:
        """This configuration as it is on one listener, or for one SASL mechanism on it."""
        return self._with_parsed(overrides_of(self.overrides, KEYS, listener=name, mechanism=mechanism))

    def _with_parsed(self, texts: Mapping[str, str]) -> BrokerConfig:
        values: dict[str, Any] = {KEYS[name].attribute: KEYS[name].parse(text) for name, text in texts.items()}
        return replace(self, **values) if values else self

    def check(self) -> None:
        """Raise a ConfigError for settings that are fine alone and wrong together."""
        for name, items in (("listeners", self.listeners), ("log.dirs", self.log_dirs)):
            if not items or not all(items):
                raise ConfigError(f"{name}: it must name at least one, and none may be empty.", key=name)
        if "broker" not in self.process_roles:
            raise ConfigError("process.roles: it must include broker.", key="process.roles")
        _ = self.parsed_super_users
        _ = self.parsed_advertised_listeners, self.parsed_max_connections_per_ip_overrides
        _ = self.parsed_controller_listener, self.parsed_bootstrap_servers, self.parsed_inter_broker_listener_name
        _ = self.parsed_http_listeners, self.parsed_http_advertised_listeners
        others = [voter for voter in self.parsed_controller_voters if voter.node_id != self.node_id]
        if others and self.parsed_controller_listener is None:
            raise ConfigError(
                "controller.quorum.voters: it names other nodes, but no listener of this one is among"
                " controller.listener.names.",
                key="controller.quorum.voters",
            )


KEYS: Mapping[str, Key] = keys_of(BrokerConfig)


def broker_key(name: str) -> Key:
    """The broker setting of that name, or a ConfigError."""
    try:
        return KEYS[name]
    except KeyError:
        pass
    if (key := overridden_key(name, KEYS)) is not None:
        return key
    if name in TOPIC_KEYS and TOPIC_KEYS[name].synonyms:
        hint = f"; {name} belongs to topics, and the broker's default for it is {TOPIC_KEYS[name].synonyms[0].name}"
    else:
        hint = did_you_mean(name, KEYS)
    raise ConfigError(f"{name}: there is no such broker setting{hint}.", key=name)


def validate_broker_config(name: str, value: str, *, for_one_broker: bool = True) -> None:
    """Raise a ConfigError unless this setting may be given to a running broker, or else to all of them at once."""
    key = broker_key(name)
    if key.read_only:
        raise ConfigError(f"{name}: it cannot be changed while the broker runs.", key=name, value=value)
    if key.scope is Scope.PER_BROKER and not for_one_broker:
        raise ConfigError(f"{name}: it can be set for one broker only, not for the cluster.", key=name, value=value)
    key.parse(value)


def parse_connection_limits(text: str) -> Mapping[str, int]:
    """address:count pairs, as max.connections.per.ip.overrides has them."""
    limits: dict[str, int] = {}
    for pair in filter(None, (item.strip() for item in text.split(","))):
        address, _, count = pair.rpartition(":")
        if not address or not count.isdecimal():
            raise ConfigError(
                f"max.connections.per.ip.overrides: {pair!r} is not allowed; it must be address:count.",
                key="max.connections.per.ip.overrides",
                value=text,
            )
        limits[address.strip("[]")] = int(count)
    return limits
