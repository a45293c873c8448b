"""Tidemark for Python programs: a real Kafka-compatible broker inside this process, for tests and small tools.

import tidemark

with tidemark.embedded() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark._embedded import BrokerFailed, EmbeddedBroker, embedded, embedded_async

__all__ = ["BrokerFailed", "EmbeddedBroker", "embedded", "embedded_async"]


def __getattr__(name: str) -> object:
    # Every pytest run with Tidemark installed imports this package for its plugin; the broker waits until it is used.
    if name in __all__:
        import tidemark._embedded

        return getattr(tidemark._embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
