"""Every API × every right it needs × every state of that right: our answers are Apache Kafka's, as recorded from it.

`support/record_kafka_acls.py` makes the recording again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acl_answers import digest
from acl_cases import GROUP, TABLE, TOKEN_OWNER, TOKEN_SECRET, TOPIC, TXN, World, users
from acl_cases_tokens import create_request
from guarded_broker import GuardedBroker, guarded_cluster
from record_kafka_acls import creations

from tidemark.broker.core.api_table import api_table
from tidemark.protocol.messages import create_acls, find_coordinator, init_producer_id, offset_commit

RECORDED = json.loads((Path(__file__).parent / "recorded" / "kafka-answers.json").read_text())["answers"]
# Where we differ, and why.
UNKNOWN_SENDER = "a broker that is not registered is refused, though it asks for nothing"
KNOWN: dict[tuple[str, str], str] = {
    ("AlterPartition", "super user"): UNKNOWN_SENDER,
    ("AlterPartition", "CLUSTER_ACTION CLUSTER kafka-cluster: allow"): UNKNOWN_SENDER,
}
EVERYONE = list(users())


async def prepared(guarded: GuardedBroker) -> World:
    root = guarded.client
    await root.create(TOPIC)
    wanted = [creation for user in EVERYONE for creation in creations(user)]
    answer = await root.ask(create_acls.CreateAclsRequest(creations=wanted))
    assert not any(each.error_code for each in answer.results)
    for key_type, key in ((0, GROUP), (1, TXN)):
        await root.ask(find_coordinator.FindCoordinatorRequest(key_type=key_type, key=key), 3)
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    commit = offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    while (await root.ask(commit, 8)).topics[0].partitions[0].error_code:
        await asyncio.sleep(0.01)
    begin = init_producer_id.InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=60_000)
    while (await root.ask(begin, 4)).error_code:
        await asyncio.sleep(0.01)
    token = await root.ask(create_request(TOKEN_OWNER), 3)
    return World(topic_id=await root.topic_id(TOPIC), token_hmac=bytes(token.hmac))


@pytest.fixture
async def whole_cluster(start_node: Any, client_class: Any) -> Any:
    broker = await guarded_cluster(
        start_node,
        client_class,
        offsets_topic_num_partitions=2,
        transaction_state_log_num_partitions=2,
        group_initial_rebalance_delay_ms=0,
        delegation_token_secret_key=TOKEN_SECRET,
    )
    yield broker
    await broker.close()


def differences(case: str, ours: dict[str, list[str]]) -> Iterator[str]:
    for state, told in ours.items():
        expected = RECORDED[case][state]
        if told != expected and (case, state) not in KNOWN:
            yield f"{case} [{state}]\n  Kafka:    {expected}\n  Tidemark: {told}"


async def test_answers_are_those_of_kafka(whole_cluster: GuardedBroker) -> None:
    world = await prepared(whole_cluster)
    ours: dict[str, dict[str, list[str]]] = {}
    for user in EVERYONE:
        address = whole_cluster.controller_address if user.case.on_controller else None
        client = await whole_cluster.connect(user.name, address=address)
        try:
            answer = await client.ask(user.case.ask(world), user.case.version)
            told = digest(answer, version=user.case.version, topic_id=world.topic_id)
        except asyncio.IncompleteReadError:
            told = ["closed"]
        await client.close()
        ours.setdefault(user.case.name, {})[user.state] = told
    found = [line for case, states in ours.items() for line in differences(case, states)]
    assert not found, f"{len(found)} answers differ:\n" + "\n".join(found)


def test_every_case_is_recorded_in_every_state() -> None:
    expected: dict[str, set[str]] = {}
    for user in EVERYONE:
        expected.setdefault(user.case.name, set()).add(user.state)
    assert {case: set(states) for case, states in RECORDED.items()} == expected


def test_every_known_difference_is_one_of_a_case() -> None:
    assert {case for case, _ in KNOWN} <= {case.name for case in TABLE.cases}


# Those that are not asked of Kafka: our own, what comes before a client is anybody, and what Kafka asks of other APIs.
NOT_ASKED = {
    "ApiVersions": "open to everybody",
    "GetTelemetrySubscriptions": "open to everybody",
    "PushTelemetry": "open to everybody",
    "SaslHandshake": "open to everybody",
    "SaslAuthenticate": "open to everybody",
    "DescribeClientUsage": "our own",
    "Forwarded": "our own",
    "JoinQuorum": "our own",
    "RaftMessage": "our own",
}


def test_every_api_that_is_served_is_in_the_table() -> None:
    asked = {case.name.split(" ")[0] for case in TABLE.cases}
    served = {entry.name for entry in api_table().values()}
    assert served - asked - NOT_ASKED.keys() == set()
