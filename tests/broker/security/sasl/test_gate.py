"""Logins over real connections: what passes the gate, and what does not."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from sasl_client import log_in

from tidemark.broker.config.errors import ConfigError
from tidemark.broker.security.sasl.authentication import check_by
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.api_versions import ApiVersionsRequest
from tidemark.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemark.protocol.messages.metadata import MetadataRequest
from tidemark.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tidemark.protocol.messages.sasl_handshake import SaslHandshakeRequest

SECURE = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl_plain_users": '{"ann": "ann-secret"}',
    "connection_failed_authentication_delay_ms": 0,
}


class OneUser:
    """What an operator may write."""

    def authenticate(self, user: str, password: str) -> bool:
        if user == "broken":
            raise RuntimeError("the directory is down")
        return (user, password) == ("eve", "callback")


class Forgetful:
    """What an operator may write by mistake: its answer is an object, and so true."""

    def authenticate(self, user: str, password: str) -> object:
        return [user, password]


class Asynchronous:
    async def authenticate(self, user: str, password: str) -> bool:
        return False


async def test_nothing_is_answered_before_a_login_but_versions(start_node: Any, connect: Any) -> None:
    node = await start_node(**SECURE)
    client = await connect(node)
    assert (await client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"))).api_keys
    client.send(MetadataRequest(topics=None), 12)
    assert await client.closed_by_peer()


async def test_whoever_is_in_is_served_and_whoever_logs_in_again_is_not(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(**SECURE))
    assert (await log_in(client, "ann", "ann-secret", "PLAIN")).error_code == 0
    assert (await client.ask(MetadataRequest(topics=[]))).brokers
    again = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_requests_that_follow_a_login_in_one_piece_are_served(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(**SECURE))
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0ann\0ann-secret"), 2)
    client.send(ApiVersionsRequest(), 0)
    for request in (SaslHandshakeRequest, SaslAuthenticateRequest, ApiVersionsRequest):
        (size,) = struct.unpack(">i", await client.reader.readexactly(4))
        assert await client.reader.readexactly(size), request


async def test_bare_tokens_of_old_clients(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(**SECURE))
    assert (await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)).error_code == 0
    token = b"\0ann\0ann-secret"
    client.writer.write(struct.pack(">i", len(token)) + token)
    assert await client.reader.readexactly(4) == bytes(4)
    assert (await client.ask(MetadataRequest(topics=[]))).brokers


async def test_a_stranger_may_send_half_a_megabyte_and_a_client_more(start_node: Any, connect: Any) -> None:
    node = await start_node(**SECURE)
    stranger = await connect(node)
    stranger.writer.write(struct.pack(">ihhi", 524_289, 17, 1, 1))
    assert await stranger.closed_by_peer()
    client = await connect(node)
    await log_in(client, "ann", "ann-secret", "PLAIN")
    await client.create("t")
    assert (await client.produce("t", bytes(700_000))).error_code == 0


async def test_a_failed_login_waits_for_its_answer(start_node: Any, connect: Any) -> None:
    node = await start_node(**{**SECURE, "connection_failed_authentication_delay_ms": 300})
    client, loop = await connect(node), asyncio.get_running_loop()
    began = loop.time()
    answer = await log_in(client, "ann", "wrong", "PLAIN")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert loop.time() >= began + 0.25
    assert await client.closed_by_peer()


async def test_a_class_of_the_operators_decides(start_node: Any, connect: Any) -> None:
    name = f"{OneUser.__module__}.{OneUser.__qualname__}"
    node = await start_node(**{**SECURE, "sasl_server_callback_handler_class": name})
    client = await connect(node)
    assert (await log_in(client, "eve", "callback", "PLAIN")).error_code == 0
    assert (await client.ask(MetadataRequest(topics=[]))).brokers
    for user in ("ann", "broken"):
        answer = await log_in(await connect(node), user, "ann-secret", "PLAIN")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_class_that_answers_neither_yes_nor_no_lets_nobody_in(start_node: Any, connect: Any) -> None:
    settings = {**SECURE, "sasl_server_callback_handler_class": f"{__name__}.Forgetful"}
    answer = await log_in(await connect(await start_node(**settings)), "eve", "callback", "PLAIN")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ConfigError, match="coroutine"):
        check_by(f"{__name__}.Asynchronous")


async def test_what_follows_a_failed_login_in_one_piece_is_not_even_looked_at(
    start_node: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect(await start_node(**{**SECURE, "connection_failed_authentication_delay_ms": 200}))
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0ann\0wrong"), 2)
    for _ in range(100):
        client.send(MetadataRequest(topics=None), 12)
    assert await client.closed_by_peer()
    assert len([line for line in caplog.messages if line.startswith("refused")]) == 1


async def test_a_login_that_ends_is_renewed_or_the_connection_closed(start_node: Any, connect: Any) -> None:
    node = await start_node(**SECURE, connections_max_reauth_ms=1_000)
    stays, goes = await connect(node), await connect(node)
    for client in (stays, goes):
        assert (await log_in(client, "ann", "ann-secret", "PLAIN")).session_lifetime_ms == 1_000
    assert (await log_in(stays, "ann", "ann-secret", "PLAIN")).error_code == 0
    too_soon = await stays.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert too_soon.error_code == ErrorCode.ILLEGAL_SASL_STATE
    async with asyncio.timeout(10):
        while (await log_in(stays, "ann", "ann-secret", "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE:
            await asyncio.sleep(0.02)
    assert (await stays.ask(MetadataRequest(topics=[]))).brokers
    goes.send(MetadataRequest(topics=[]), 12)
    assert await goes.closed_by_peer()


async def test_secrets_are_not_described(start_node: Any, connect: Any) -> None:
    settings = {**SECURE, "sasl_node_user": "node", "sasl_node_password": "node-secret"}
    settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = (
        'PlainLoginModule required username="x" password="jaas-secret" user_x="jaas-secret";'
    )
    client = await connect(await start_node(**settings))
    await log_in(client, "ann", "ann-secret", "PLAIN")
    resource = DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    answer = repr(await client.ask(request))
    assert "sasl.node.password" in answer
    assert not [secret for secret in ("ann-secret", "node-secret", "jaas-secret") if secret in answer]


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\xff" * 40, struct.pack(">i", 4) + b"\0\0\0\0"]
)
async def test_whoever_speaks_something_else_is_hung_up_on(start_node: Any, connect: Any, data: bytes) -> None:
    client = await connect(await start_node(**SECURE))
    client.writer.write(data)
    assert await client.closed_by_peer()
