"""Clients of a real broker that use too much: what they are told, and that they are not heard meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.broker.server.span_collector import collector
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from tidemark.protocol.messages.alter_client_quotas import AlterationData, AlterClientQuotasRequest, EntityData, OpData
from tidemark.protocol.messages.api_versions import ApiVersionsRequest
from tidemark.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidemark.protocol.messages.fetch import FetchResponse, ReplicaState
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemark.protocol.messages.produce import ProduceResponse


async def set_quotas(client: Any, entity: dict[str, str | None], **values: float | None) -> None:
    parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    answer = await client.ask(AlterClientQuotasRequest(entries=[AlterationData(entity=parts, ops=ops)]))
    assert [each.error_code for each in answer.entries] == [0]


@pytest.fixture
async def node(start_node: Any) -> Any:
    return await start_node(auto_create_topics_enable="false")


@pytest.fixture
async def client(node: Any, connect: Any) -> Any:
    """An administrator with another client id than `test`, which quotas are for here."""
    return await connect(node)


def muted_seconds(node: Any, client: Any) -> float:
    """For how long the broker will not read from a client."""
    port = client.writer.get_extra_info("sockname")[1]
    (connection,) = (each for each in node._server._connections if each.peer.endswith(f":{port}"))
    if connection._muted is None:
        return 0.0
    assert not connection.transport.is_reading()
    return float(connection._muted.when() - asyncio.get_running_loop().time())


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("partitions", [1, 2], ids=["quick", "general"])
async def test_a_producer_over_its_quota_is_told_and_then_not_heard(
    client: Any, node: Any, connect: Any, requests: Any, acks: int, partitions: int
) -> None:
    await client.create("t", 2)
    await set_quotas(client, {"client_id": "test"}, producer_byte_rate=10_000)
    producer, other = await connect(node), await connect(node)
    request = requests.produce("t", bytes(65_000), acks=acks)
    if partitions == 2:
        request.topic_data[0].partition_data += requests.produce("t", b"x", partition=1).topic_data[0].partition_data
    answer = await producer.call(request, ProduceResponse, 12)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms == pytest.approx(6000, abs=100), "half a second's bytes were there at first"
    assert 0 < muted_seconds(node, producer) <= 6.1
    assert muted_seconds(node, other) == 0
    assert (await other.produce("t", b"y")).error_code == 0


async def test_requests_that_came_together_wait_too_and_are_answered_in_order(
    client: Any, node: Any, connect: Any, requests: Any
) -> None:
    await client.create("t")
    await set_quotas(client, {"user": "ANONYMOUS"}, producer_byte_rate=100_000)
    producer = await connect(node)
    sent = [producer.send(requests.produce("t", bytes(20_000)), 12) for _ in range(12)]
    began, throttled = asyncio.get_running_loop().time(), []
    for number, correlation_id in enumerate(sent):
        answer = await producer.receive(ProduceResponse, 12)
        assert producer.answered == correlation_id
        assert answer.responses[0].partition_responses[0].base_offset == number
        throttled.append(answer.throttle_time_ms)
    assert sum(each > 0 for each in throttled) >= 8
    assert asyncio.get_running_loop().time() - began > 2.4 - 0.5 - 0.2 - 0.1


async def test_without_acks_a_producer_is_held_back_too(client: Any, node: Any, connect: Any, requests: Any) -> None:
    await client.create("t")
    await set_quotas(client, {"client_id": None}, producer_byte_rate=10_000)
    producer = await connect(node)
    began = asyncio.get_running_loop().time()
    producer.send(requests.produce("t", bytes(12_000), acks=0), 12)
    await producer.produce("t", b"x")
    assert asyncio.get_running_loop().time() - began > 0.6


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "long poll"])
async def test_a_consumer_over_its_quota_gets_its_records_and_is_told(
    client: Any, node: Any, connect: Any, requests: Any, waits: bool
) -> None:
    await client.create("t")
    await set_quotas(client, {"client_id": "test"}, consumer_byte_rate=10_000)
    consumer = await connect(node)
    if not waits:
        await client.produce("t", bytes(65_000))
    sent = consumer.send(requests.fetch("t", 0, wait_ms=5000 if waits else 0), 12)
    if waits:
        await client.produce("t", bytes(65_000))
    answer = await consumer.receive(FetchResponse, 12)
    assert consumer.answered == sent
    assert len(answer.responses[0].partitions[0].records) > 65_000
    assert answer.throttle_time_ms == pytest.approx(6000, abs=100)
    assert 0 < muted_seconds(node, consumer) <= 6.1


async def test_a_follower_s_fetch_is_never_slowed(client: Any, node: Any, connect: Any, requests: Any) -> None:
    await client.create("t")
    await client.produce("t", bytes(15_000))
    await set_quotas(client, {"client_id": None}, consumer_byte_rate=1, request_percentage=0.0001)
    peer = await connect(node)
    for _ in range(5):
        request = requests.fetch("t", 0)
        request.replica_state = ReplicaState(replica_id=7)
        answer = await peer.call(request, FetchResponse, 15)
        assert answer.throttle_time_ms == 0
    assert not [each for each in node._quotas.usage() if each.fetched_bytes]


async def test_what_brokers_ask_each_other_about_transactions_is_never_slowed(
    client: Any, node: Any, connect: Any
) -> None:
    await set_quotas(client, {"client_id": None}, request_percentage=0.0001)
    peer = await connect(node)
    for _ in range(5):
        asked = AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(transactional_id="t")])
        assert (await peer.ask(asked, 5)).throttle_time_ms == 0
    assert muted_seconds(node, peer) == 0
    assert not [each for each in node._quotas.usage() if each.request_seconds]


async def test_a_client_that_takes_too_much_time_is_told_and_waits_a_window_at_most(
    client: Any, node: Any, connect: Any
) -> None:
    await client.create("t", 50)
    await set_quotas(client, {"user": None}, request_percentage=0.01)
    busy = await connect(node)
    loop, told, began = asyncio.get_running_loop(), 0, 0.0
    while not told:
        began = loop.time()
        told = (await busy.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)).throttle_time_ms
    assert told <= 1000
    heartbeat = await busy.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert loop.time() - began > told / 1000 - 0.05
    assert heartbeat.error_code == 0
    [usage] = [each for each in node._quotas.usage() if each.client_id == "test"]
    assert usage.throttled >= 1
    assert usage.throttle_seconds >= told / 1000
    assert usage.request_seconds > 0


async def test_quotas_that_are_taken_away_count_no_more(client: Any, node: Any, connect: Any, requests: Any) -> None:
    await client.create("t")
    await set_quotas(client, {"user": None}, producer_byte_rate=1000)
    producer = await connect(node)
    assert (await producer.call(requests.produce("t", bytes(600)), ProduceResponse, 12)).throttle_time_ms > 0
    await set_quotas(client, {"user": None}, producer_byte_rate=None)
    assert (await producer.call(requests.produce("t", bytes(60_000)), ProduceResponse, 12)).throttle_time_ms == 0
    assert not node._quotas.is_active


async def test_many_partitions_are_throttled_by_error_or_by_time(client: Any, node: Any, connect: Any) -> None:
    await set_quotas(client, {"user": None}, controller_mutation_rate=1)

    def creation(name: str, count: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)])

    answer = await (await connect(node)).ask(creation("big", 11), 7)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, pytest.approx(1000, abs=900))
    answer = await (await connect(node)).ask(creation("small", 1), 7)
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time_ms > 0
    answer = await (await connect(node)).ask(creation("old", 1), 5)
    assert (answer.topics[0].error_code, answer.throttle_time_ms > 0) == (0, True)
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="big", count=12, assignments=None)], timeout_ms=1000
    )
    assert (await (await connect(node)).ask(more, 3)).results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (await (await connect(node)).ask(more, 2)).results[0].error_code == 0
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="big")], timeout_ms=1000)
    assert (await (await connect(node)).ask(gone, 6)).responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    older = DeleteTopicsRequest(topic_names=["big"], timeout_ms=1000)
    answer = await (await connect(node)).ask(older, 4)
    assert (answer.responses[0].error_code, answer.throttle_time_ms > 10_000) == (0, True)


async def test_topics_made_on_first_use_count_as_well(start_node: Any, connect: Any) -> None:
    node = await start_node(num_partitions=8)
    client = await connect(node)
    await set_quotas(client, {"user": None}, controller_mutation_rate=0.1)
    wanted = [MetadataRequest(topics=[MetadataRequestTopic(name=name)]) for name in ("a", "b")]
    codes = [(await client.ask(each, 9)).topics[0].error_code for each in wanted]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_an_address_that_connects_too_often_is_hung_up_on(client: Any, node: Any, connect: Any) -> None:
    await set_quotas(client, {"ip": "127.0.0.1"}, connection_creation_rate=1)
    first = await connect(node)
    assert (await first.ask(MetadataRequest(topics=[]), 9)).brokers
    refused = [await connect(node) for _ in range(4)]
    assert await refused[-1].closed_by_peer()
    assert (await first.ask(MetadataRequest(topics=[]), 9)).brokers
    await set_quotas(client, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    assert (await (await connect(node)).ask(MetadataRequest(topics=[]), 9)).brokers


async def test_connections_over_the_listener_s_rate_are_served_later(start_node: Any, connect: Any) -> None:
    node = await start_node(**{"listener.name.plaintext.max.connection.creation.rate": 4})
    began = asyncio.get_running_loop().time()
    clients = [await connect(node) for _ in range(7)]
    answers = await asyncio.gather(*(each.ask(MetadataRequest(topics=[]), 9) for each in clients))
    assert all(each.brokers for each in answers)
    assert asyncio.get_running_loop().time() - began > 0.6


async def test_a_producer_whose_requests_are_traced_is_held_to_its_quota(
    start_node: Any, connect: Any, requests: Any
) -> None:
    with collector() as (address, _):
        node = await start_node(tidemark_traces_otlp_endpoint=address)
        client = await connect(node)
        await client.create("t")
        await set_quotas(client, {"client_id": "test"}, producer_byte_rate=10_000)
        producer = await connect(node)
        answer = await producer.ask(requests.produce("t", bytes(500_000)))
        assert answer.throttle_time_ms > 0
        await node.stop()
