"""Everything that clients can do over HTTP, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.registry import Handler, Route
from tidemark.broker.http.addresses import Addresses
from tidemark.broker.http.admin import Admin
from tidemark.broker.http.calls import Calls, GoOn
from tidemark.broker.http.consumers import Consumers
from tidemark.broker.http.consuming import Consuming
from tidemark.broker.http.fetching import Fetching
from tidemark.broker.http.groups import Groups
from tidemark.broker.http.held_answers import HeldAnswers
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.producing import Producing
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.router import HttpRoute
from tidemark.broker.http.streaming import Streaming
from tidemark.broker.metadata.store import MetadataStore

if TYPE_CHECKING:
    from tidemark.broker.cluster.forwarding import Forwarding
    from tidemark.broker.security.guard import Guard


class HttpApi:
    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MetadataStore,
        handler_of: Callable[[Route, int], Handler],
        forwarding: Forwarding | None,
        guard: Guard | None,
        quotas: HttpQuotas,
        go_on: GoOn,
        room: HeldAnswers,
    ) -> None:
        """`handler_of`: what answers decoded requests, as the dispatcher has it. `room`: for what answers hold."""
        node_id = config.node_id
        listener = config.parsed_listeners[0].name
        calls = Calls(handler_of, node_id=node_id, listener=listener, forwarding=forwarding, go_on=go_on)
        leaders = Leaders(store, calls)
        if guard is not None:
            leaders = Leaders(store, calls, may_describe=guard.lets_describe, may_read=guard.lets_read)
        fetching = Fetching(calls, leaders, node_id=node_id, room=room)
        addresses = Addresses(store, node_id=node_id, is_alone=forwarding is None)

        def brokers() -> list[int]:
            return [broker.broker_id for broker in store.image.brokers.values() if not broker.fenced]

        self.consumers = Consumers(
            config,
            calls=calls,
            leaders=leaders,
            fetching=fetching,
            addresses=addresses,
            quotas=quotas,
            store=store,
        )
        self._parts = (
            Producing(calls, leaders, addresses=addresses, quotas=quotas),
            Consuming(calls, leaders, fetching, addresses=addresses, quotas=quotas),
            Streaming(calls, leaders, fetching, quotas=quotas),
            Admin(calls, brokers=brokers),
            Groups(calls, leaders, fetching, brokers=brokers),
            self.consumers,
        )

    def routes(self) -> list[HttpRoute]:
        return [route for part in self._parts for route in part.routes()]
