"""A broker with an authorizer, in the test's own event loop, and clients that are whoever the test says.

Who a client is, listeners find out; here the test tells the broker, so that rules are tested without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from harness.ports import free_port

from tidemark.broker.config.broker_settings import STANDARD_AUTHORIZER
from tidemark.broker.core.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from tidemark.broker.core.principal import Principal
from tidemark.protocol.messages.create_acls import AclCreation, CreateAclsRequest

ROOT = "root"


class GuardedBroker:
    def __init__(self, start_node: Any, make_client: Callable[..., Any], **settings: Any) -> None:
        self._start_node = start_node
        self._make_client = make_client
        self._settings = settings
        self._clients: list[Any] = []
        self.controller_address: tuple[str, int] | None = None  # of one that has such a listener

    async def start(self) -> None:
        known: dict[str, Any] = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": f"User:{ROOT}"}
        self.node = await self._start_node(**known | self._settings)
        self.client = await self.connect(ROOT)

    async def restart(self) -> None:
        await self.close()
        await self.node.stop()
        await self.start()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        self._clients.clear()

    @property
    def acls(self) -> list[Acl]:
        return list(self.node._store.image.acls)

    async def connect(self, user: str, *, host: str = "127.0.0.1", address: tuple[str, int] | None = None) -> Any:
        reader, writer = await asyncio.open_connection(*(address or self.node.address), local_addr=(host, 0))
        client = self._make_client(reader, writer)
        self._clients.append(client)
        port = writer.get_extra_info("sockname")[1]
        while (found := self._connection(f"{host}:{port}")) is None:
            await asyncio.sleep(0)
        found.principal = Principal("User", user)
        return client

    def _connection(self, peer: str) -> Any:
        return next((each for each in self.node._server._connections if each.peer == peer), None)

    async def allow(self, user: str, *rights: tuple[AclOperation, ResourceType, str], **fields: Any) -> None:
        """Add an entry for each right."""
        creations = [creation(user, *right, **fields) for right in rights]
        answer = await self.client.ask(CreateAclsRequest(creations=creations))
        assert [each.error_code for each in answer.results] == [0] * len(rights)


async def guarded_cluster(start_node: Any, make_client: Callable[..., Any], **settings: Any) -> GuardedBroker:
    """With a controller listener."""
    port = free_port()
    broker = GuardedBroker(
        start_node,
        make_client,
        node_id=1,
        listeners=f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        controller_listener_names="CONTROLLER",
        controller_quorum_voters=f"1@127.0.0.1:{port}",
        controlled_shutdown_enable=False,
        super_users=f"User:{ROOT};User:ANONYMOUS",  # the node's own connections are anonymous here
        **settings,
    )
    await broker.start()
    broker.controller_address = ("127.0.0.1", port)
    return broker


def creation(user: str, operation: AclOperation, resource_type: ResourceType, name: str, **fields: Any) -> AclCreation:
    known: dict[str, Any] = {
        "resource_pattern_type": PatternType.LITERAL,
        "host": "*",
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(
        principal=f"User:{user}",
        operation=operation,
        resource_type=resource_type,
        resource_name=name,
        **known | fields,
    )
