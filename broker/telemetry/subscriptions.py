"""Which clients are asked for which metrics: the CLIENT_METRICS settings, and who they match."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.broker.config import ClientMetricsConfig, ConfigError
from tidemark.broker.config.client_metrics import Pattern
from tidemark.broker.metadata.image import CLIENT_METRICS_RESOURCE

INTERVAL_MS_DEFAULT: Final = 300_000  # after which a client that is asked for nothing asks again
ALL: Final = "*"
MATCHED_CHARACTERS_MAX: Final = 256  # of what a client says about itself: expressions may take long


class Client(NamedTuple):
    """What a client says about itself, or shows, by the names that `match` has for it."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Wanted(NamedTuple):
    """What a client is asked for."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Pattern]

    def matches(self, client: Client) -> bool:
        facts = client._asdict()
        return all(pattern.fullmatch(facts[name][:MATCHED_CHARACTERS_MAX]) for name, pattern in self.patterns.items())


def subscriptions(configs: Mapping[tuple[int, str], Mapping[str, str]]) -> list[Subscription]:
    found = []
    for (kind, _), values in configs.items():
        if kind != CLIENT_METRICS_RESOURCE:
            continue
        try:
            config = ClientMetricsConfig.resolve(values)
            found.append(Subscription(config.metrics, config.interval_ms, config.patterns))
        except (ConfigError, KeyError):
            continue  # checked before it was stored, so this is another version's word
    return found


def wanted_of(client: Client, known: list[Subscription], instance_id: bytes) -> Wanted:
    """All that matches, together: every metric, at the shortest interval."""
    matching = [each for each in known if each.metrics and each.matches(client)]
    metrics = tuple(sorted({name for each in matching for name in each.metrics}))
    if ALL in metrics:
        metrics = (ALL,)
    interval_ms = min((each.interval_ms for each in matching), default=INTERVAL_MS_DEFAULT)
    # Changes with what is asked for, and is another one for each client.
    code = zlib.crc32(f"{metrics}{interval_ms}".encode(), zlib.crc32(instance_id))
    return Wanted(code - (1 << 32) if code >> 31 else code, interval_ms, metrics)
