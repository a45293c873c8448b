"""Requests that a broker passes on to the controller say who asks."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.broker.cluster.forwarding import Forwarding
from tidemark.broker.core.principal import Principal
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


@pytest.fixture
def askers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The clients that controllers have handled forwarded requests of."""
    seen: list[Any] = []
    before = Forwarding.__init__

    def watched(self: Forwarding, *arguments: Any) -> None:
        before(self, *arguments)

        def guard(_route: Any, handle: Any) -> Any:
            def handled(request: Any, call: Any) -> Any:
                seen.append(call.connection)
                return handle(request, call)

            return handled

        self.guard = guard

    monkeypatch.setattr(Forwarding, "__init__", watched)
    return seen


async def test_the_controller_hears_who_asks_and_from_where(nodes: Any, connect: Any, askers: list[Any]) -> None:
    await nodes.start()
    client = await connect(nodes.running[nodes.another])
    (connection,) = (each for each in nodes.running[nodes.another]._server._connections if each.listener == "PLAINTEXT")
    connection.principal = Principal("User", "ann")
    await client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]))
    (asker,) = askers
    assert (str(asker.principal), asker.host, asker.listener) == ("User:ann", "127.0.0.1", "PLAINTEXT")


async def test_what_a_node_asks_for_itself_is_nobody_elses_request(nodes: Any, connect: Any, askers: list[Any]) -> None:
    await nodes.start()
    client = await connect(nodes.running[nodes.another])
    await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True))
    assert askers == [None]
