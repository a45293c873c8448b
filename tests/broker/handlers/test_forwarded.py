from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemark.protocol.messages.forwarded import ForwardedRequest
from tidemark.protocol.messages.metadata import MetadataRequest
from tidemark.protocol.schema import api, codec


async def forward(cluster: Any, request: Any, version: int, **fields: Any) -> Any:
    body = bytearray()
    codec(type(request), version).encode(request, body)
    known: dict[str, Any] = {
        "api_key": api(type(request)).key,
        "api_version": version,
        "client_id": "c",
        "body": bytes(body),
    }
    return await cluster.controller.ask(ForwardedRequest(**known | fields))


CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])


async def test_a_change_is_made_and_its_answer_says_how_far_the_metadata_is(cluster: Any) -> None:
    for version in (2, 7):
        before = cluster.node._store.applied_index
        answer = await forward(cluster, CREATE, version)
        assert answer.error_code == ErrorCode.NONE
        assert answer.index >= before
        inner = codec(CreateTopicsResponse, version).decode(memoryview(answer.body))
        code = ErrorCode.NONE if version == 2 else ErrorCode.TOPIC_ALREADY_EXISTS
        assert [(each.name, each.error_code) for each in inner.topics] == [("t", code)]
    assert "t" in cluster.image.topics


async def test_only_what_the_controller_decides_can_be_forwarded(cluster: Any) -> None:
    assert (await forward(cluster, MetadataRequest(topics=[]), 12)).error_code == ErrorCode.INVALID_REQUEST
    for wrong in ({"api_key": 4711}, {"api_version": 1}, {"api_version": 99}):
        answer = await forward(cluster, CREATE, 7, **wrong)
        assert (answer.error_code, bytes(answer.body)) == (ErrorCode.INVALID_REQUEST, b"")
    assert not cluster.image.topics


async def test_a_node_that_is_not_the_controller_says_so(cluster: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(type(cluster.node._store), "is_controller", property(lambda _self: False))
    answer = await forward(cluster, CREATE, 7)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    monkeypatch.undo()
    assert not cluster.image.topics


async def test_clients_cannot_send_it(cluster: Any) -> None:
    cluster.client.send(ForwardedRequest(api_key=19, api_version=7, body=b""), 0)
    assert await cluster.client.closed_by_peer()
