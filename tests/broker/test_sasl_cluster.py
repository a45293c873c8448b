"""Three nodes that log in at each other, and let nobody else in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.oidc import AUDIENCE, ISSUER, Issuer, serving
from sasl_client import log_in

from tidemark.broker.config.broker_settings import STANDARD_AUTHORIZER
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemark.protocol.messages.metadata import MetadataRequest
from tidemark.protocol.sasl.scram import salted_password

SECURE = {
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl_node_user": "node",
    "sasl_node_password": "node-secret",
}


def upsertion(user: str, password: str) -> ScramCredentialUpsertion:
    salted = salted_password("SCRAM-SHA-512", password, salt=b"salt", iterations=4096)
    return ScramCredentialUpsertion(name=user, mechanism=2, iterations=4096, salt=b"salt", salted_password=salted)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_cluster_whose_nodes_log_in_at_each_other(nodes: Any, connect: Any, mechanism: str) -> None:
    names = ("sasl_mechanism_inter_broker_protocol", "sasl_mechanism_controller_protocol")
    await nodes.start(**SECURE, **dict.fromkeys(names, mechanism))
    client = await connect(nodes.running[nodes.another])
    assert (await log_in(client, "node", "node-secret")).error_code == 0
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    assert (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics[0].error_code == 0
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion("ann", "secret")])
    assert (await client.ask(request)).results[0].error_code == 0
    await nodes.until(lambda: all("ann" in nodes.image(each).credentials.scram for each in nodes.ids[:3]))
    await nodes.until(lambda: len(nodes.image(1).topics["t"].partitions[0].isr) == 3)
    leader = nodes.image(1).topics["t"].partitions[0].leader
    ann = await connect(nodes.running[leader])
    assert (await log_in(ann, "ann", "secret")).error_code == 0
    assert (await ann.produce("t", b"x")).error_code == 0


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def oauth(issuer: Issuer) -> Iterator[dict[str, Any]]:
    """Nodes log in with tokens of the issuer's; who has a password (`node`) may log in, too."""
    names = ("sasl_mechanism_inter_broker_protocol", "sasl_mechanism_controller_protocol")
    with serving(issuer) as url:
        yield {
            **SECURE,
            **dict.fromkeys(names, "OAUTHBEARER"),
            "sasl_enabled_mechanisms": "PLAIN,OAUTHBEARER",
            "sasl_oauthbearer_jwks_endpoint_url": f"{url}/keys",
            "sasl_oauthbearer_expected_issuer": ISSUER,
            "sasl_oauthbearer_expected_audience": AUDIENCE,
            "sasl_oauthbearer_token_endpoint_url": f"{url}/token",
            "sasl_oauthbearer_client_credentials_client_id": "a-node",
            "sasl_oauthbearer_client_credentials_client_secret": "of-the-issuer",
        }


async def test_nodes_log_in_at_each_other_with_tokens_of_an_issuer(
    nodes: Any, connect: Any, issuer: Issuer, oauth: dict[str, Any]
) -> None:
    issuer.lifetime_seconds = 2  # so that every link has to be renewed
    await nodes.start(**oauth, authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:a-node;User:node")
    client = await connect(nodes.running[nodes.another])
    assert (await log_in(client, "node", "node-secret", mechanism="PLAIN")).error_code == 0
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    assert (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics[0].error_code == 0
    await nodes.until(lambda: len(nodes.image(1).topics["t"].partitions[0].isr) == 3)
    issued = issuer.issued
    await nodes.until(lambda: issuer.issued >= issued + 6)
    leader = nodes.image(1).topics["t"].partitions[0].leader
    other = await connect(nodes.running[leader])
    await log_in(other, "node", "node-secret", mechanism="PLAIN")
    assert (await other.produce("t", b"x")).error_code == ErrorCode.NONE
    assert len(nodes.image(1).topics["t"].partitions[0].isr) == 3


async def test_a_node_with_a_token_for_others_does_not_get_in(
    nodes: Any, connect: Any, issuer: Issuer, oauth: dict[str, Any], tmp_path: Path
) -> None:
    await nodes.start(**oauth)
    token = tmp_path / "token"
    token.write_text(issuer.token("a-node", aud="others") + "\n")
    starting = asyncio.create_task(nodes.start(4, **{**oauth, "sasl_oauthbearer_token_endpoint_url": token.as_uri()}))
    _, pending = await asyncio.wait([starting], timeout=2)
    assert pending, "a node that nobody lets in does not start"
    token.write_text(issuer.token("a-node") + "\n")
    await starting


async def test_a_node_without_the_password_does_not_get_in(nodes: Any, connect: Any) -> None:
    await nodes.start(**SECURE)
    starting = asyncio.create_task(nodes.start(4, **{**SECURE, "sasl_node_password": "guessed"}))
    client = await connect(nodes.running[1])
    await log_in(client, "node", "node-secret")
    _, pending = await asyncio.wait([starting], timeout=2)
    assert pending, "a node that nobody lets in does not start"
    assert len((await client.ask(MetadataRequest(topics=[]))).brokers) == 3
    starting.cancel()
    await asyncio.wait([starting])


async def test_logins_end_and_nodes_renew_theirs_without_a_gap(nodes: Any, connect: Any) -> None:
    await nodes.start(**SECURE, connections_max_reauth_ms=1500)
    client = await connect(nodes.running[1])
    assert (await log_in(client, "node", "node-secret")).session_lifetime_ms == 1500
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    assert (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics[0].error_code == 0
    await nodes.until(lambda: len(nodes.image(1).topics["t"].partitions[0].isr) == 3)
    leader = nodes.image(1).topics["t"].partitions[0].leader
    deadline = asyncio.get_running_loop().time() + 4
    while asyncio.get_running_loop().time() < deadline:  # two or three renewals of every link
        other = await connect(nodes.running[leader])
        await log_in(other, "node", "node-secret")
        assert (await other.produce("t", b"x")).error_code == ErrorCode.NONE
        await asyncio.sleep(0.1)
    assert nodes.image(1).topics["t"].partitions[0].leader_epoch == 0
    client.send(MetadataRequest(topics=[]), 12)
    assert await client.closed_by_peer()
