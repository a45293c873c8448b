from __future__ import annotations

from typing import Any

import pytest

from tidemark.broker.metadata import topics
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

NULL_FROM = 1
CLUSTER_ID_FROM = 2
CREATION_FROM = 4
LEADER_EPOCHS_FROM = 7
OPERATIONS_FROM, CLUSTER_OPERATIONS_TO = 8, 10
IDS_TOLD_FROM, IDS_ASKED_FROM = 10, 12
NOT_ASKED_FOR = -(2**31)


async def ask(client: Any, version: int, *names: str, **fields: Any) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    known: dict[str, Any] = {"topics": topics, "allow_auto_topic_creation": False}
    return await client.ask(MetadataRequest(**known | fields), version)


async def test_brokers_and_a_topic_are_returned_as_far_as_the_version_can(
    shared: Any, topic: str, shared_broker: Any, version: int
) -> None:
    answer = await ask(shared, version, topic)
    (broker,) = answer.brokers
    assert (broker.host, broker.port) == shared_broker.address
    assert answer.controller_id == (broker.node_id if version >= NULL_FROM else -1)
    assert bool(answer.cluster_id) == (version >= CLUSTER_ID_FROM)
    (told,) = answer.topics
    assert (told.error_code, told.name, told.is_internal) == (0, topic, False)
    assert (told.topic_id != bytes(16)) == (version >= IDS_TOLD_FROM)
    assert sorted(each.partition_index for each in told.partitions) == [0, 1, 2]
    for each in told.partitions:
        assert (each.error_code, each.leader_id, each.offline_replicas) == (0, broker.node_id, [])
        assert each.replica_nodes == each.isr_nodes == [broker.node_id]
        assert each.leader_epoch == (0 if version >= LEADER_EPOCHS_FROM else -1)


async def test_all_topics_are_asked_for_by_null_and_in_version_0_by_an_empty_list(
    shared: Any, topic: str, version: int
) -> None:
    everything = await ask(shared, version, topics=[] if version == 0 else None)
    assert topic in {each.name for each in everything.topics}
    if version >= NULL_FROM:
        assert (await ask(shared, version)).topics == []


@pytest.mark.parametrize("version", range(CREATION_FROM, 14))
async def test_a_topic_that_is_missing_or_badly_named_is_said_so_and_not_created(shared: Any, version: int) -> None:
    answer = await ask(shared, version, "missing", "bad name")
    codes = {each.name: each.error_code for each in answer.topics}
    assert codes == {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert "missing" not in {each.name for each in (await ask(shared, version, topics=None)).topics}


async def test_a_missing_topic_is_created_on_the_way(client: Any, version: int) -> None:
    answer = await ask(client, version, "wanted", allow_auto_topic_creation=True)
    assert [(each.name, each.error_code) for each in answer.topics] in (
        [("wanted", 0)],
        [("wanted", ErrorCode.LEADER_NOT_AVAILABLE)],
    )
    again = await ask(client, 12, "wanted")
    assert [each.error_code for each in again.topics] == [0]


async def test_a_topic_that_is_named_twice_is_returned_once(shared: Any, topic: str, version: int) -> None:
    assert [each.name for each in (await ask(shared, version, topic, topic)).topics] == [topic]


@pytest.mark.parametrize("version", range(IDS_ASKED_FROM, 14))
async def test_a_topic_is_asked_for_by_its_id(shared: Any, topic: str, version: int) -> None:
    topic_id = await shared.topic_id(topic)
    wanted = [MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, b"?" * 16)]
    answer = await ask(shared, version, topics=wanted)
    told = {bytes(each.topic_id): (each.name or "", each.error_code) for each in answer.topics}
    assert told == {topic_id: (topic, 0), b"?" * 16: ("", ErrorCode.UNKNOWN_TOPIC_ID)}


async def test_authorized_operations_are_returned_when_asked_for(shared: Any, topic: str, version: int) -> None:
    silent = await ask(shared, version, topic)
    assert silent.cluster_authorized_operations == silent.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    if version < OPERATIONS_FROM:
        return
    answer = await ask(
        shared,
        version,
        topic,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=version <= CLUSTER_OPERATIONS_TO,
    )
    assert answer.topics[0].topic_authorized_operations > 0
    assert (answer.cluster_authorized_operations > 0) == (version <= CLUSTER_OPERATIONS_TO)


async def test_internal_topics_are_marked(groups: Any, version: int) -> None:
    answer = await ask(groups.client, version, "__consumer_offsets")
    assert [each.is_internal for each in answer.topics] == [version >= NULL_FROM]


async def test_leaders_elsewhere_missing_leaders_and_offline_replicas(cluster: Any) -> None:
    await cluster.join(2, 3)
    await cluster.create("t", [2, 1])
    await cluster.create("u", [3])
    await cluster.heartbeat(3, want_fence=True)
    answer = await ask(cluster.client, 13, "t", "u")
    assert sorted(each.node_id for each in answer.brokers) == [1, 2]
    first, second = (topic.partitions[0] for topic in answer.topics)
    assert (first.error_code, first.leader_id, first.offline_replicas) == (0, 2, [])
    assert (second.error_code, second.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (second.replica_nodes, second.offline_replicas) == ([3], [3])


async def test_a_broker_without_a_lease_does_not_name_itself_as_leader(cluster: Any) -> None:
    await cluster.create("t", [1])
    table = cluster.node._replicas.table
    before, table.lease_until = table.lease_until, 0.0
    answer = await ask(cluster.client, 13, "t")
    table.lease_until = before
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def test_topics_are_created_for_a_client_that_names_them_unless_they_are_too_many(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "PARTITIONS_MAX_PER_REQUEST", 10)
    client = await connect(await start_node(num_partitions="2"))
    few = await ask(client, 12, *(f"few-{index}" for index in range(5)), allow_auto_topic_creation=True)
    assert {each.error_code for each in few.topics} == {ErrorCode.NONE}
    many = await ask(client, 12, *(f"many-{index}" for index in range(6)), allow_auto_topic_creation=True)
    assert {each.error_code for each in many.topics} == {ErrorCode.POLICY_VIOLATION}
    assert len((await ask(client, 12, topics=None)).topics) == 5
