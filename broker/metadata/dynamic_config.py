"""The broker's settings as they are now: what it started with, overlaid by what was changed while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from tidemark.broker.config import BrokerConfig, ConfigError
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, Image
from tidemark.broker.metadata.records import ConfigRecord, Record
from tidemark.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


def check_broker_name(name: str, settings: DynamicConfig) -> None:
    """Raises Refused, unless it is this broker that is asked for."""
    own = settings.static.node_id
    if name != str(own):
        raise Refused(ErrorCode.INVALID_REQUEST, f"Broker {name!r} was asked for, but this is broker {own}.")


class DynamicConfig:
    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.dynamic_cluster: Mapping[str, str] = {}
        self.dynamic_broker: Mapping[str, str] = {}
        self.checks: list[Callable[[BrokerConfig], None]] = []
        """Each raises a ConfigError for settings that this very broker cannot work with."""
        self._watchers: list[Callable[[BrokerConfig, Image], None]] = []

    def watch(self, watcher: Callable[[BrokerConfig, Image], None]) -> None:
        self._watchers.append(watcher)

    def require_usable(self, records: Sequence[Record]) -> None:
        """Raises Refused if these changes would give this broker settings that it cannot work with."""
        name = str(self.static.node_id)
        own = [each for each in records if isinstance(each, ConfigRecord) and each.resource_type == BROKER_RESOURCE]
        changes = {each.name: each.value for each in own if each.resource_name == name}
        if not changes or not self.checks:
            return
        wanted = {**self.dynamic_cluster, **self.dynamic_broker, **changes}
        try:
            config = self.static.with_values({key: value for key, value in wanted.items() if value is not None})
            for check in self.checks:
                check(config)
        except ConfigError as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error

    def follow(self, _old: Image, new: Image) -> None:
        cluster = new.config_of(BROKER_RESOURCE, CLUSTER_DEFAULT)
        broker = new.config_of(BROKER_RESOURCE, str(self.static.node_id))
        if cluster == self.dynamic_cluster and broker == self.dynamic_broker:
            return
        try:
            current = self.static.with_values({**cluster, **broker})
        except ConfigError as error:  # checked before it was stored, so this is another version's word
            log.error("a dynamic setting is not understood and is ignored: %s", error)
            return
        self.dynamic_cluster, self.dynamic_broker, self.current = cluster, broker, current
        for watcher in self._watchers:
            watcher(current, new)
