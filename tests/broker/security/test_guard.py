"""What the table of answers does not show: the quick ways, sessions, revocation, what is left of a refused request."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from acl_cases_tokens import create_request
from guarded_broker import GuardedBroker

from tidemark.broker.core.acl import AclOperation, Permission, ResourceType
from tidemark.broker.core.api_table import api_table
from tidemark.broker.core.registry import Call, find_route
from tidemark.broker.security import audit as audit_log
from tidemark.broker.security.rule import MODULES, OPEN, rule_of
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidemark.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemark.protocol.messages.describe_groups import DescribeGroupsRequest
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemark.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tidemark.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tidemark.protocol.schema import api

FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, WRITE = (AclOperation.READ, ResourceType.TOPIC), (AclOperation.WRITE, ResourceType.TOPIC)


async def revoke(guarded: Any) -> None:
    everything = DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    await guarded.client.ask(DeleteAclsRequest(filters=[everything]))


async def test_the_quick_way_of_produce_is_guarded_at_every_request(guarded: Any) -> None:
    await guarded.client.create("t")
    await guarded.client.create("u")
    ann = await guarded.connect("ann")
    assert (await ann.produce("t", b"v")).error_code == FAILED
    await guarded.allow("ann", (*WRITE, "t"))
    for offset in range(3):
        answer = await ann.produce("t", b"v")
        assert (answer.error_code, answer.base_offset) == (0, offset)
        assert (await ann.produce("u", b"v")).error_code == FAILED
    await guarded.allow("ann", (*WRITE, "t"), permission_type=Permission.DENY)
    assert (await ann.produce("t", b"v")).error_code == FAILED
    await revoke(guarded)
    assert (await ann.produce("t", b"v")).error_code == FAILED
    assert (await guarded.client.produce("t", b"v")).base_offset == 3


async def test_a_produce_request_without_an_answer_is_refused_by_hanging_up(guarded: Any, requests: Any) -> None:
    await guarded.client.create("t")
    ann = await guarded.connect("ann")
    ann.send(requests.produce("t", b"v", acks=0), 12)
    assert await ann.closed_by_peer()
    assert (await guarded.client.fetch("t", 0)).high_watermark == 0


async def test_what_is_allowed_of_a_request_happens(guarded: Any, requests: Any) -> None:
    await guarded.client.create("t")
    await guarded.client.create("u")
    await guarded.allow("ann", (*WRITE, "t"))
    ann = await guarded.connect("ann")
    request = requests.produce("t", b"v")
    request.topic_data += requests.produce("u", b"v").topic_data
    answer = await ann.ask(request, 12)
    assert {topic.name: topic.partition_responses[0].error_code for topic in answer.responses} == {"t": 0, "u": FAILED}


def session_fetch(topic_id: bytes | None, session_id: int = 0, epoch: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [] if topic_id is None else [FetchTopic(topic_id=topic_id, partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics)


async def test_a_session_ends_to_show_a_topic_when_the_right_is_gone(guarded: Any) -> None:
    await guarded.client.create("t")
    await guarded.client.produce("t", b"secret")
    topic_id = await guarded.client.topic_id("t")
    await guarded.allow("ann", (*READ, "t"))
    ann = await guarded.connect("ann")
    first = await ann.ask(session_fetch(topic_id), 16)
    assert first.responses[0].partitions[0].records
    await revoke(guarded)
    again = await ann.ask(session_fetch(None, first.session_id, 1), 16)
    (data,) = again.responses[0].partitions
    assert (data.error_code, data.records) == (FAILED, b"")
    await guarded.allow("ann", (*READ, "t"))
    assert (await ann.ask(session_fetch(None, first.session_id, 2), 16)).responses[0].partitions[0].records


async def test_a_fetch_that_waits_is_not_answered_after_the_right_is_gone(guarded: Any) -> None:
    await guarded.client.create("t")
    await guarded.allow("ann", (*READ, "t"))
    ann = await guarded.connect("ann")
    waiting = asyncio.ensure_future(ann.fetch("t", 0, wait_ms=8_000))
    await asyncio.sleep(0.05)
    await revoke(guarded)
    await guarded.client.produce("t", b"secret")
    data = await waiting
    assert (data.error_code, data.records) == (FAILED, b"")


async def test_only_nodes_fetch_as_replicas(guarded: Any) -> None:
    await guarded.client.create("t")
    await guarded.client.produce("t", b"secret")
    await guarded.allow("ann", (*READ, "t"))
    ann = await guarded.connect("ann")
    request = session_fetch(await guarded.client.topic_id("t"))
    request.replica_state = ReplicaState(replica_id=7, replica_epoch=1)
    (data,) = (await ann.ask(request, 16)).responses[0].partitions
    assert (data.error_code, data.records) == (FAILED, b"")


async def test_rights_hold_for_the_host_they_are_given_for(guarded: Any) -> None:
    await guarded.client.create("t")
    await guarded.allow("ann", (*READ, "t"), host="127.0.0.8/30")
    near, far = await guarded.connect("ann", host="127.0.0.9"), await guarded.connect("ann")
    assert (await near.fetch("t", 0)).error_code == 0
    assert (await far.fetch("t", 0)).error_code == FAILED


async def test_a_topic_is_created_on_first_use_only_by_who_may(guarded: Any) -> None:
    ann = await guarded.connect("ann")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    await guarded.allow("ann", (AclOperation.DESCRIBE, ResourceType.TOPIC, "new"))
    assert (await ann.ask(request, 12)).topics[0].error_code == FAILED
    assert "new" not in guarded.node._store.image.topics
    await guarded.allow("ann", (AclOperation.CREATE, ResourceType.TOPIC, "new"))
    assert (await ann.ask(request, 12)).topics[0].error_code == 0
    assert "new" in guarded.node._store.image.topics


async def test_a_group_that_is_refused_never_exists(guarded: Any) -> None:
    ann = await guarded.connect("ann")
    answer = await ann.ask(JoinGroupRequest(group_id="g", session_timeout_ms=6000, protocol_type="consumer"), 4)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.fixture
def audit_lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "tidemark.audit")
    return lambda: [json.loads(each.message) for each in caplog.records if each.name == "tidemark.audit"]


async def test_a_denial_is_told_once_and_then_counted(guarded: Any, audit_lines: Any) -> None:
    await guarded.client.create("t")
    ann = await guarded.connect("ann")
    for _ in range(5):
        await ann.produce("t", b"v")
    (line,) = audit_lines()
    assert line == {
        "decision": "denied",
        "principal": "User:ann",
        "host": "127.0.0.1",
        "api": "Produce",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource": "t",
        "reason": "no entry allows it",
    }
    await guarded.close()
    await guarded.node.stop()
    _, counted = audit_lines()
    assert (counted["principal"], counted["resource"], counted["count"]) == ("User:ann", "t", 4)


async def test_more_kinds_of_denials_than_are_kept_are_counted(
    guarded: Any, audit_lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "KINDS_MAX", 3)
    ann = await guarded.connect("ann")
    for number in range(10):
        await ann.fetch(f"t{number}", 0)
    assert len(audit_lines()) == 3
    await guarded.close()
    await guarded.node.stop()
    assert audit_lines()[-1] == {"decision": "denied", "others": 7}


@pytest.mark.parametrize("allowed", [True, False])
async def test_delegation_tokens_are_in_the_audit_log(
    start_node: Any, client_class: Any, audit_lines: Any, allowed: bool
) -> None:
    secret = {"delegation_token_secret_key": "s", "tidemark_audit_allowed": allowed}
    guarded = GuardedBroker(start_node, client_class, **secret)
    await guarded.start()
    ann, bob = await guarded.connect("ann"), await guarded.connect("bob")
    own = await ann.ask(create_request(), 3)
    assert (await bob.ask(create_request("ann"), 3)).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    renewing = RenewDelegationTokenRequest(hmac=own.hmac, renew_period_ms=-1)
    assert (await bob.ask(renewing, 2)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await ann.ask(renewing, 2)).error_code == 0
    told = [(line["decision"], line["principal"], line["api"], line["resource"]) for line in audit_lines()]
    denied = [
        ("denied", "User:bob", "CreateDelegationToken", "User:ann"),
        ("denied", "User:bob", "RenewDelegationToken", own.token_id),
    ]
    granted = [
        ("allowed", "User:ann", "CreateDelegationToken", "User:ann"),
        ("allowed", "User:ann", "RenewDelegationToken", own.token_id),
    ]
    assert told == ([granted[0], *denied, granted[1]] if allowed else denied)
    await guarded.close()


def test_every_api_has_a_rule_or_is_open() -> None:
    named = {
        name
        for module in MODULES
        for name in __import__(f"tidemark.broker.security.rules.{module}", fromlist=["RULES"]).RULES
    }
    assert {entry.name for entry in api_table().values()} - named - OPEN == set()


def test_an_api_without_a_rule_is_for_nodes_only() -> None:
    assert rule_of("Unheard") is not None
    assert rule_of("ApiVersions") is None


@pytest.mark.parametrize("version", [5, 6])
async def test_who_may_only_describe_deletes_no_topic_that_comes_into_being_meanwhile(
    guarded: Any, version: int
) -> None:
    """It is unknown when the right is looked at, and there when it is this change's turn."""
    await guarded.allow("ann", (AclOperation.DESCRIBE, ResourceType.TOPIC, "t"))
    ann = await guarded.connect("ann")
    creating = asyncio.create_task(guarded.client.create("t"))
    request = DeleteTopicsRequest(topic_names=["t"], topics=[DeleteTopicState(name="t")])
    codes = set()
    while not creating.done():
        [result] = (await ann.ask(request, version)).responses
        codes.add(result.error_code)
    await creating
    assert codes <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, FAILED}
    assert await guarded.client.topic_id("t") != bytes(16)


NAMES = [f"no-such-{number}" for number in range(1_000)]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES]), 12),
        (DeleteTopicsRequest(topic_names=NAMES), 5),
        (FindCoordinatorRequest(coordinator_keys=NAMES), 6),
        (DescribeGroupsRequest(groups=NAMES), 6),
        (
            DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES]
            ),
            4,
        ),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name) for name in NAMES]), 9),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_rights_of_very_many_things_are_looked_up_in_slices(guarded: Any, request_: Any, version: int) -> None:
    """Eight megabytes of names took two seconds, in which nobody else was served."""
    ann = await guarded.connect("ann")
    answer = await ann.ask(request_, version)
    assert answer is not None
    route = find_route(api(type(request_)).key)
    assert route is not None
    [connection] = [each for each in guarded.node._server._connections if each.principal.name == "ann"]
    call = Call(connection, version, "test")
    rule: Any = rule_of(route.name)
    deciding = rule(request_, guarded.node._guard.access(route.name, route.response, call), call)
    assert sum(1 for _ in deciding) >= len(NAMES) // 64
