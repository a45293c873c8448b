"""Streams and polls end when their client's token expires, its user is deleted, or its rights are withdrawn."""

import asyncio
import base64
import json
import time
from typing import Any

import pytest

from tidemark.broker.http import authentication
from tidemark.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidemark.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tidemark.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidemark.protocol.sasl import scram

TOPIC, LITERAL, READ, ALLOW, ANY = 2, 3, 3, 3, 1
SECONDS_MAX = 20


@pytest.fixture
async def secured(start_http: Any, browse: Any, connect: Any) -> Any:
    """An HTTP client, and a Kafka client who may do everything."""
    node = await start_http(
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,HTTP:SASL_PLAINTEXT",
        **{"listener.name.http.sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256"},
        sasl_oauthbearer_unsecured_allow="true",
        sasl_oauthbearer_clock_skew_seconds="0",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ann;User:ANONYMOUS",
        connection_failed_authentication_delay_ms="1",
    )
    kafka = await connect(node)
    await kafka.create("t")
    return browse(node), kafka


def token(user: str, seconds: float) -> dict[str, str]:
    claims = {"sub": user, "iat": time.time() - 1, "exp": time.time() + seconds}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({"alg": "none"}, claims)]
    return {"Authorization": f"Bearer {'.'.join(parts).replace('=', '')}."}


async def last_words(client: Any, **options: Any) -> str:
    async with asyncio.timeout(SECONDS_MAX), client.stream("GET", "/topics/t/stream", **options) as stream:
        lines = [line async for line in stream.aiter_lines() if line]
    return str(json.loads(lines[-1])["error"])


async def test_a_stream_and_a_poll_end_with_their_token(secured: Any) -> None:
    client, kafka = secured
    headers = token("ann", 2)
    ending = asyncio.create_task(last_words(client, headers=headers))
    polling = asyncio.create_task(client.get("/topics/t/partitions/0/records?wait_ms=15000", headers=headers))
    async with asyncio.timeout(SECONDS_MAX):
        while (await client.get("/topics", headers=headers)).status_code == 200:
            await asyncio.sleep(0.05)
    await kafka.produce("t", b"1")
    assert await ending == "SASL_AUTHENTICATION_FAILED"
    assert (await polling).status_code == 401
    assert (await client.get("/topics", headers=headers)).status_code == 401


async def test_a_stream_ends_with_the_right_to_read(secured: Any) -> None:
    client, kafka = secured
    may_read = AclCreation(
        resource_type=TOPIC,
        resource_name="t",
        resource_pattern_type=LITERAL,
        principal="User:bob",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    await kafka.ask(CreateAclsRequest(creations=[may_read]))
    headers = token("bob", 60)
    async with asyncio.timeout(SECONDS_MAX), client.stream("GET", "/topics/t/stream", headers=headers) as stream:
        await kafka.produce("t", b"1")
        lines = stream.aiter_lines()
        assert json.loads(await anext(lines))["value"] == 1
        withdrawn = DeleteAclsFilter(
            resource_type_filter=TOPIC, principal_filter="User:bob", operation=ANY, permission_type=ANY
        )
        await kafka.ask(DeleteAclsRequest(filters=[withdrawn]))
        await kafka.produce("t", b"2")
        assert json.loads(await anext(lines))["error"] == "TOPIC_AUTHORIZATION_FAILED", "it does not get the second"


async def test_a_stream_ends_when_its_user_is_deleted(secured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "REMEMBERED_MS", 100)
    client, kafka = secured
    salt = b"0123456789abcdef"
    salted = scram.salted_password("SCRAM-SHA-256", "secret", salt=salt, iterations=4096)
    made = ScramCredentialUpsertion(name="ann", mechanism=1, iterations=4096, salt=salt, salted_password=salted)
    await kafka.ask(AlterUserScramCredentialsRequest(upsertions=[made]))
    ending = asyncio.create_task(last_words(client, auth=("ann", "secret")))
    assert (await client.get("/topics", auth=("ann", "secret"))).status_code == 200
    deleted = ScramCredentialDeletion(name="ann", mechanism=1)
    await kafka.ask(AlterUserScramCredentialsRequest(deletions=[deleted]))
    assert await ending == "SASL_AUTHENTICATION_FAILED"
