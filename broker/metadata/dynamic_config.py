"""The broker's settings as they are now: what it started with, overlaid by what was changed while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tidemark.broker.config import BrokerConfig, ConfigError
from tidemark.broker.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, Image

log = logging.getLogger(__name__)


class DynamicConfig:
    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.dynamic_cluster: Mapping[str, str] = {}
        self.dynamic_broker: Mapping[str, str] = {}
        self._watchers: list[Callable[[BrokerConfig, Image], None]] = []

    def watch(self, watcher: Callable[[BrokerConfig, Image], None]) -> None:
        self._watchers.append(watcher)

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
