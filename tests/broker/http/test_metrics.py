"""/metrics of a node: in both formats, true to what clients did, and never holding up the event loop."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tidemark.broker.core.sliced_work import SLICE_SECONDS
from tidemark.broker.metrics import docs
from tidemark.broker.metrics.metric import Kind
from tidemark.protocol.messages.alter_client_quotas import AlterationData, AlterClientQuotasRequest, EntityData, OpData
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

ROOT = Path(__file__).parents[3]


async def scraped(client: Any) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(answer.text)
        for sample in family.samples
    }


def of(samples: Any, name: str, **labels: str) -> float:
    return float(samples[name, frozenset(labels.items())])


async def commit(client: Any, group: str, topic: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    asked = OffsetCommitRequest(
        group_id=group,
        member_id="",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    await client.ask(FindCoordinatorRequest(key=group, coordinator_keys=[group]))
    for _ in range(100):  # until the coordinator's topic is there
        answer = await client.ask(asked, 8)
        if not answer.topics[0].partitions[0].error_code:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(answer)


async def test_what_clients_did_is_counted(start_http: Any, browse: Any, connect: Any) -> None:
    node = await start_http(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    kafka = await connect(node)
    await kafka.create("orders", partitions=2)
    for _ in range(3):
        await kafka.produce("orders", b"one", b"two")
    fetched = await kafka.fetch("orders", 0)
    assert (await kafka.produce("nowhere", b"lost")).error_code == 3
    await commit(kafka, 'a "group"', "orders", 4)
    await kafka.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000))
    samples = await scraped(browse(node))
    assert of(samples, "kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 6
    size = of(samples, "kafka_server_brokertopicmetrics_bytesin_total", topic="orders")
    assert size == of(samples, "kafka_log_log_size", topic="orders", partition="0") > 0
    assert of(samples, "kafka_server_brokertopicmetrics_bytesout_total", topic="orders") == len(fetched.records) == size
    assert of(samples, "kafka_server_brokertopicmetrics_messagesout_total", topic="orders") == 6
    assert of(samples, "kafka_log_log_logendoffset", topic="orders", partition="0") == 6
    assert of(samples, "kafka_log_log_logendoffset", topic="orders", partition="1") == 0
    assert of(samples, "kafka_network_requestmetrics_requests_total", request="Produce") == 4
    for phase in ("total", "local", "remote", "requestqueue"):
        assert of(samples, f"kafka_network_requestmetrics_{phase}time_seconds_count", request="Produce") == 4
    error = of(
        samples, "kafka_network_requestmetrics_errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION"
    )
    assert error == 1
    group = {"consumergroup": 'a "group"', "topic": "orders", "partition": "0"}
    assert of(samples, "kafka_consumergroup_lag", **group) == 2
    assert of(samples, "kafka_consumergroup_current_offset", **group) == 4
    assert of(samples, "kafka_consumergroup_lag_seconds", **group) >= 0
    assert of(samples, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert of(samples, "kafka_server_socketservermetrics_connection_count", listener="PLAINTEXT") == 1
    assert of(samples, "process_open_fds") > 3


async def test_what_a_client_under_a_quota_used_and_waited_for_is_told(
    start_http: Any, browse: Any, connect: Any
) -> None:
    node = await start_http()
    kafka = await connect(node)
    await kafka.create("t")
    assert not [name for name, _ in await scraped(browse(node)) if name.startswith("tidemark_client_")]
    user = EntityData(entity_type="user", entity_name=None)
    quota = AlterationData(entity=[user], ops=[OpData(key="producer_byte_rate", value=1e9)])
    await kafka.ask(AlterClientQuotasRequest(entries=[quota]))
    await kafka.produce("t", b"one")
    samples = await scraped(browse(node))
    (produced,) = [value for (name, _), value in samples.items() if name == "tidemark_client_produced_bytes_total"]
    (waited,) = [value for (name, _), value in samples.items() if name == "tidemark_client_throttle_seconds_total"]
    assert (produced > 0, waited) == (True, 0)


async def test_both_formats_can_be_read_and_everything_told_is_declared(
    start_http: Any, browse: Any, connect: Any
) -> None:
    node = await start_http(offsets_topic_num_partitions="1")
    kafka = await connect(node)
    await kafka.create("t")
    await commit(kafka, "g", "t", 0)
    client = browse(node)
    declared = {metric.name: metric for section in docs.SECTIONS.values() for metric in section}
    text = await client.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    plain = {family.name for family in parse_text(text.text)}
    opened = await client.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in parse_open_metrics(opened.text)}
    assert set(families) <= set(declared)
    assert {name.removesuffix("_info") for name in plain} == set(families)
    for name, family in families.items():
        assert family.type == declared[name].kind.value
        expected = set(declared[name].labels)
        for sample in family.samples:
            allowed = expected | ({"le"} if declared[name].kind is Kind.HISTOGRAM else set())
            assert set(sample.labels) <= allowed, sample


@pytest.mark.parametrize(
    ("detail", "told"),
    [("topic", {(("topic", "t"),)}), ("broker", {()})],
)
async def test_detail_can_be_limited(start_http: Any, browse: Any, connect: Any, detail: str, told: Any) -> None:
    node = await start_http(tidemark_metrics_detail=detail)
    kafka = await connect(node)
    await kafka.create("t", partitions=3)
    await kafka.produce("t", b"x")
    samples = await scraped(browse(node))
    sizes = {tuple(labels): value for (name, labels), value in samples.items() if name == "kafka_log_log_size"}
    assert set(sizes) == told
    assert all(value > 0 for value in sizes.values())
    assert not any(name == "kafka_log_log_logendoffset" for name, _ in samples)


async def test_a_scrape_of_many_partitions_lets_others_have_their_turn(
    start_http: Any, browse: Any, connect: Any
) -> None:
    node = await start_http()
    kafka = await connect(node)
    await kafka.create("many", partitions=500)
    turns = 0
    is_over = False

    async def count_turns() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    began = time.process_time()  # not the time of a machine that has other things to do
    metrics = (await browse(node).get("/metrics")).text
    taken = time.process_time() - began
    is_over = True
    await counting
    assert metrics.count("kafka_log_log_size{") == 500
    assert turns > taken / SLICE_SECONDS / 20  # held for all of it, it turns a few times


async def test_a_node_is_scraped_while_the_controller_stops_and_others_take_over(nodes: Any, browse: Any) -> None:
    await nodes.start(http_listeners="HTTP://127.0.0.1:0")
    survivor = next(node_id for node_id in nodes.voters if node_id != nodes.controller)
    client, scrapes = browse(nodes.running[survivor]), 0
    stopping = asyncio.create_task(nodes.stop(nodes.controller))
    while not stopping.done() or scrapes < 5:
        names = {name for name, _ in await scraped(client)}
        assert {"kafka_server_raftmetrics_currentepoch", "kafka_server_replicamanager_partitioncount"} <= names
        scrapes += 1
    await stopping


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == docs.page(), "run make docs"


def test_no_metric_is_declared_twice() -> None:
    names = [metric.name for section in docs.SECTIONS.values() for metric in section]
    assert len(names) == len(set(names))
