from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.messages.raft_message import RaftMessageRequest


async def still_served(cluster: Any) -> bool:
    await cluster.create("t", [1])
    return "t" in cluster.image.topics


@pytest.mark.parametrize(
    "message",
    [
        RaftMessageRequest(sender=9, data=b"\x01" * 40),
        RaftMessageRequest(sender=9, data=b"", cluster_id="another"),
        RaftMessageRequest(sender=1, data=b"\xff" * 100, sender_directory_id=b"x" * 16),
    ],
)
async def test_what_is_not_from_a_member_is_dropped_without_an_answer(cluster: Any, message: Any) -> None:
    node = cluster.node._store.driver.node
    term, configuration = node.term, cluster.configuration
    cluster.controller.send(message, 0)
    # The connection stays, and its next answer is that of the next request.
    assert (await cluster.join_quorum(2)).leader_id == 1
    assert node.term == term
    assert cluster.configuration.voters == configuration.voters
    assert await still_served(cluster)


async def test_the_message_of_a_member_reaches_the_quorum(cluster: Any, monkeypatch: Any) -> None:
    await cluster.join_quorum(2)
    taken: list[tuple[bytes, int]] = []
    driver = cluster.node._store.driver
    monkeypatch.setattr(type(driver), "receive", lambda _self, data, *, sender: taken.append((data, sender)))
    known = {"cluster_id": cluster.image.cluster_id, "sender_directory_id": bytes([2]) * 16}
    cluster.controller.send(RaftMessageRequest(sender=2, data=b"words", **known), 0)
    await cluster.join_quorum(2)  # when it is answered, the message before it has been taken
    assert taken == [(b"words", 2)]
    monkeypatch.undo()


async def test_clients_cannot_send_it(cluster: Any) -> None:
    cluster.client.send(RaftMessageRequest(sender=9, data=b""), 0)
    assert await cluster.client.closed_by_peer()
