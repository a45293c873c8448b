"""Everything that clients can do over HTTP, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.registry import Handler, Route
from tidemark.broker.http.admin import Admin
from tidemark.broker.http.calls import Calls
from tidemark.broker.http.consuming import Consuming
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.producing import Producing
from tidemark.broker.http.router import HttpRoute
from tidemark.broker.metadata.store import MetadataStore

if TYPE_CHECKING:
    from tidemark.broker.cluster.forwarding import Forwarding


def api_routes(
    config: BrokerConfig,
    *,
    store: MetadataStore,
    handler_of: Callable[[Route, int], Handler],
    forwarding: Forwarding | None,
) -> list[HttpRoute]:
    """`handler_of`: what answers decoded requests, as the dispatcher has it."""
    listener = config.parsed_listeners[0].name
    calls = Calls(handler_of, node_id=config.node_id, listener=listener, forwarding=forwarding)
    leaders = Leaders(store, calls)
    consuming = Consuming(calls, leaders, node_id=config.node_id)

    def brokers() -> list[int]:
        return [broker.broker_id for broker in store.image.brokers.values() if not broker.fenced]

    return [
        *Producing(calls, leaders).routes(),
        *consuming.routes(),
        *Admin(calls, leaders, consuming, brokers=brokers).routes(),
    ]
