"""An outsider tries every API: not authenticated, authenticated without any right, and on the controller listener. It
gets nowhere: nothing changes, nothing is told, and the connection of the unauthenticated ends."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from acl_cases import TABLE, TOKEN_OWNER, TOKEN_SECRET, Case, World
from acl_cases_tokens import create_request
from guarded_broker import ROOT, GuardedBroker, guarded_cluster

from tidemark.broker.core.api_table import api_table
from tidemark.protocol.messages.describe_client_usage import DescribeClientUsageRequest
from tidemark.protocol.messages.forwarded import ForwardedRequest
from tidemark.protocol.messages.join_quorum import JoinQuorumRequest
from tidemark.protocol.messages.metadata import MetadataRequest
from tidemark.protocol.messages.raft_message import RaftMessageRequest
from tidemark.protocol.schema import EncodeError, api, fields_of

REFUSED = {29, 30, 31, 53, 55, 63, 65}  # 55: not attempted, because of another that was refused
BEFORE_LOGIN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
SECRETS = ("ledger", "auditors", "payouts")


@pytest.fixture
async def cluster(start_node: Any, client_class: Any) -> Any:
    broker = await guarded_cluster(
        start_node,
        client_class,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        delegation_token_secret_key=TOKEN_SECRET,
    )
    for name in SECRETS:
        await broker.client.create(name)
    yield broker
    await broker.close()


def codes(message: Any) -> list[int]:
    found = []
    for name, field in fields_of(type(message)).items():
        value = getattr(message, name)
        if name.endswith("error_code"):
            found.append(value)
        elif field.kind == "array" and not isinstance(field.of, str):
            found += [code for each in value or () for code in codes(each)]
    return found


async def tried(cluster: GuardedBroker, case: Case, version: int, world: World, address: tuple[str, int] | None) -> Any:
    """The answer; None: the broker hung up, or what is asked for cannot be said in this version."""
    client = await cluster.connect("mallory", address=address)
    try:
        return await client.ask(case.ask(world), version)
    except (asyncio.IncompleteReadError, ConnectionResetError, EncodeError):
        return None
    finally:
        await client.close()


def versions(case: Case, world: World) -> set[int]:
    """The one that the table asks for, the oldest and the newest."""
    served = api_table()[api(type(case.ask(world))).key].versions
    return {case.version, served.first, served.last}


@pytest.mark.parametrize("on_controller", [False, True])
async def test_without_rights_nothing_is_told_and_nothing_changes(cluster: Any, on_controller: bool) -> None:
    token = await cluster.client.ask(create_request(TOKEN_OWNER), 3)
    world = World(topic_id=await cluster.client.topic_id(SECRETS[0]), token_hmac=bytes(token.hmac))
    before = cluster.node._store.image
    address = cluster.controller_address if on_controller else None
    asked = [(case, version) for case in TABLE.cases for version in versions(case, world)]
    for case, version in asked:
        answer = await tried(cluster, case, version, world, address)
        if answer is None:
            continue  # hung up on
        text = repr(answer)
        assert not any(secret in text for secret in (*SECRETS, token.token_id)), (case.name, text)
        told = [code for code in codes(answer) if code not in REFUSED]
        # What has no right to be denied says so: unknown ids, empty lists, brokers' addresses.
        unknown = {3} if case.name.startswith("Produce by") else set()  # a topic without a name, before there were ids
        assert set(told) <= {0, 87, 100, 114, 115} | unknown, (case.name, version, told)
    after = cluster.node._store.image
    assert (after.topics, after.configs, after.acls) == (before.topics, before.configs, before.acls)
    assert list(after.brokers) == list(before.brokers)
    assert {each.owner.name for each in after.credentials.tokens.values()} <= {TOKEN_OWNER, "mallory"}
    assert after.credentials.scram == before.credentials.scram


async def test_what_the_table_does_not_ask_for_is_refused_as_well(cluster: Any) -> None:
    mallory = await cluster.connect("mallory")
    told = codes(await mallory.ask(DescribeClientUsageRequest()))
    assert told
    assert set(told) <= REFUSED, told


BY_THEMSELVES = {"Forwarded", "JoinQuorum", "RaftMessage", "DescribeClientUsage"}
# What clients tell about themselves: tests/broker/telemetry. Kafka asks for no right, either.
BY_THEMSELVES |= {"GetTelemetrySubscriptions", "PushTelemetry"}


def test_whatever_is_served_is_tried() -> None:
    """A new API is in the table of cases, or is named here and tried by a test of its own."""
    tried = {case.name.split(" ")[0] for case in TABLE.cases} | BEFORE_LOGIN | BY_THEMSELVES
    assert {entry.name for entry in api_table().values()} <= tried


async def test_messages_of_nodes_are_not_taken_from_others(cluster: Any) -> None:
    mallory = await cluster.connect("mallory", address=cluster.controller_address)
    answer = await mallory.ask(ForwardedRequest(api_key=19, api_version=7, is_own=True, body=b"\0" * 16), 0)
    assert (answer.error_code, bytes(answer.body)) == (31, b"")
    answer = await mallory.ask(JoinQuorumRequest(node_id=66, host="127.0.0.1", port=1), 0)
    assert answer.error_code == 31
    mallory.send(RaftMessageRequest(sender=1, data=b"vote for me"), 0)
    assert await mallory.closed_by_peer()


async def test_what_is_forwarded_is_done_with_the_rights_of_the_client(cluster: Any) -> None:
    """A node that passes on a request cannot lend the client its own rights."""
    from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from tidemark.protocol.schema import codec

    body = bytearray()
    codec(DeleteTopicsRequest, 5).encode(DeleteTopicsRequest(topic_names=[SECRETS[0]], timeout_ms=1000), body)
    node = await cluster.connect(ROOT, address=cluster.controller_address)
    forwarded = ForwardedRequest(
        api_key=20, api_version=5, principal_type="User", principal_name="mallory", client_host="::1", body=bytes(body)
    )
    answer = await node.ask(forwarded, 0)
    inner = codec(DeleteTopicsResponse, 5).decode(memoryview(answer.body))
    assert [each.error_code for each in inner.responses] == [29]
    assert SECRETS[0] in cluster.node._store.image.topics


async def test_before_login_nothing_but_login_is_answered(start_node: Any, client_class: Any) -> None:
    node = await sasl_node(start_node)
    for entry in api_table().values():
        for version in {entry.versions.first, entry.versions.last} if entry.name not in BEFORE_LOGIN else ():
            client = client_class(*await asyncio.open_connection(*node.address))
            client.writer.write(struct.pack(">ihhih", 12, entry.key, version, 1, -1) + b"\0\0")
            assert await client.closed_by_peer(), (entry.name, version)
            await client.close()


async def sasl_node(start_node: Any) -> Any:
    return await start_node(
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        sasl_enabled_mechanisms="PLAIN",
        connection_failed_authentication_delay_ms=0,
        **{
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
            )
        },
    )


async def test_a_client_that_has_not_logged_in_cannot_even_see_the_brokers(start_node: Any, client_class: Any) -> None:
    node = await sasl_node(start_node)
    client = client_class(*await asyncio.open_connection(*node.address))
    client.send(MetadataRequest(topics=None), 12)
    assert await client.closed_by_peer()
    await client.close()
