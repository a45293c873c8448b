"""Three nodes with an authorizer: what a client may is the same at all of them, and is decided with its own rights."""

from __future__ import annotations

from typing import Any

from guarded_broker import creation

from tidemark.broker.config.broker_settings import STANDARD_AUTHORIZER
from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.core.principal import Principal
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_acls import CreateAclsRequest
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=3)])


async def as_user(nodes: Any, connect: Any, node_id: int, user: str) -> Any:
    client = await connect(nodes.running[node_id])
    host, port = client.writer.get_extra_info("sockname")[:2]
    peer = f"{host}:{port}"
    (connection,) = (each for each in nodes.running[node_id]._server._connections if each.peer == peer)
    connection.principal = Principal("User", user)
    return client


async def test_a_request_that_is_passed_on_has_the_rights_of_its_client(nodes: Any, connect: Any) -> None:
    await nodes.start(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS;User:root")
    ann = await as_user(nodes, connect, nodes.another, "ann")
    answer = await ann.ask(CREATE)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    root = await as_user(nodes, connect, nodes.another, "root")
    allow = creation("ann", AclOperation.CREATE, ResourceType.TOPIC, "t")
    assert (await root.ask(CreateAclsRequest(creations=[allow]))).results[0].error_code == 0
    assert (await ann.ask(CREATE)).topics[0].error_code == 0
    await nodes.until(lambda: all(len(list(nodes.image(node_id).acls)) == 1 for node_id in nodes.running))
    assert (await ann.ask(CreateAclsRequest(creations=[allow]))).results[0].error_code == 31
