"""What /metrics tells is what happened: of a cluster whose nodes come and go, of transactions, groups and logs."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from group_members import Groups
from prometheus_client.parser import text_string_to_metric_families
from transactional_client import Transactional

from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.certificates import Authority
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidemark.protocol.records import Record, build_batch

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
ONE_SHARD = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
REPLICAS = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
RAFT = "kafka_server_raftmetrics"
TRANSACTIONS = "kafka_coordinator_transaction"


async def scraped(client: Any) -> tuple[Samples, Samples]:
    """All samples, and those of counters among them."""
    answer = await client.get("/metrics")
    everything: Samples = {}
    counters: Samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            place = sample.name, frozenset(sample.labels.items())
            everything[place] = sample.value
            if family.type in ("counter", "summary", "histogram"):
                counters[place] = sample.value
    return everything, counters


class Figures:
    """Of one node, as they are now."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def of(self, name: str, **labels: Any) -> float:
        samples, _ = await scraped(self._client)
        return samples[name, frozenset((key, str(value)) for key, value in labels.items())]

    async def all_of(self, *names: str) -> list[float]:
        samples, _ = await scraped(self._client)
        return [samples[name, frozenset()] for name in names]

    async def until(self, name: str, value: float, **labels: Any) -> None:
        async with asyncio.timeout(20):
            while await self.of(name, **labels) != value:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("detail", ["partition", "broker"])
async def test_counters_do_not_fall_when_topics_go_and_coordinators_move(
    start_http: Any, browse: Any, connect: Any, detail: str
) -> None:
    """Prometheus takes a counter that falls for one that began anew, and counts all of it once more."""
    node = await start_http(tidemark_metrics_detail=detail, **ONE_SHARD)
    kafka = await connect(node)
    await kafka.create("gone", flush_messages="1")
    await kafka.create("t", flush_messages="1")
    for topic in ("gone", "gone", "t"):
        await kafka.produce(topic, b"x")
    txn = Transactional(kafka)
    await txn.prepare()
    producer = await txn.start("id")
    await txn.add("id", producer, 0)
    await txn.commit("id", producer)
    groups = Groups(kafka, topic="t", group="g")
    member = (await groups.join(version=3)).member_id
    client = browse(node)
    _, before = await scraped(client)
    assert before["kafka_log_logflushstats_logflushtime_seconds_count", frozenset()] >= 3
    assert before[f"{TRANSACTIONS}_committed_total", frozenset()] == 1
    assert before["kafka_server_group_coordinator_metrics_group_completed_rebalance_count_total", frozenset()] == 1

    await kafka.produce("gone", b"y")  # which no scrape has seen
    await kafka.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=10_000))
    for coordinator in (node._coordinators.groups, node._coordinators.transactions):
        hosted = node._replicas.table.topics[coordinator.TOPIC]
        hosted.partitions.clear()  # as when another broker leads them
        coordinator.host()
    _, after = await scraped(client)
    assert member
    if detail == "broker":
        messages = "kafka_server_brokertopicmetrics_messagesin_total", frozenset[tuple[str, str]]()
        assert after[messages] == before[messages] + 1
    fallen = {place: (value, after.get(place)) for place, value in before.items() if value > after.get(place, 0)}
    assert {place for place in fallen if ("topic", "gone") not in place[1]} == set()


async def test_transactions_are_told_by_state_and_age_until_they_end(
    start_http: Any, browse: Any, connect: Any
) -> None:
    node = await start_http(**ONE_SHARD)
    kafka = await connect(node)
    await kafka.create("t")
    txn = Transactional(kafka)
    await txn.prepare()
    figures = Figures(browse(node))
    producer = await txn.start("id")
    assert await figures.of(f"{TRANSACTIONS}_open") == 0
    await txn.add("id", producer, 0)
    assert await figures.of(f"{TRANSACTIONS}_transactions", state="Ongoing") == 1
    assert await figures.of(f"{TRANSACTIONS}_open") == 1
    await asyncio.sleep(0.1)
    assert 0.1 <= await figures.of(f"{TRANSACTIONS}_oldest_open_seconds") < 10
    producer = await txn.abort("id", producer)
    await figures.until(f"{TRANSACTIONS}_transactions", 1, state="CompleteAbort")
    names = [f"{TRANSACTIONS}_{name}" for name in ("open", "oldest_open_seconds", "committed_total", "aborted_total")]
    assert await figures.all_of(*names) == [0, 0, 0, 1]


async def test_groups_are_told_with_their_members_and_generation(start_http: Any, browse: Any, connect: Any) -> None:
    node = await start_http(**ONE_SHARD, group_initial_rebalance_delay_ms="0")
    kafka = await connect(node)
    await kafka.create("t")
    groups = Groups(kafka, topic="t", group="g")
    await groups.prepare()
    joined = await groups.join(version=3)
    figures = Figures(browse(node))
    assert await figures.of("kafka_consumergroup_members", consumergroup="g") == 1
    assert await figures.of("kafka_consumergroup_generation", consumergroup="g") == joined.generation_id
    assert await figures.of("kafka_coordinator_group_groupmetadatamanager_numgroups", state="CompletingRebalance") == 1
    assert isinstance(node._coordinators.groups, GroupCoordinator)


async def test_logs_are_told_with_their_segments_start_and_producers(
    start_http: Any, browse: Any, connect: Any
) -> None:
    node = await start_http()
    kafka = await connect(node)
    await kafka.create("t", segment_bytes=str(1 << 20))
    for number in range(3):
        batch = build_batch([Record(value=bytes(600_000))], producer_id=number, producer_epoch=0, base_sequence=0)
        assert (await kafka.produce("t", batch=batch)).error_code == ErrorCode.NONE
    node._replicas.table.leader_of("t", 0).delete_before(1)
    figures = Figures(browse(node))
    place = {"topic": "t", "partition": 0}
    assert await figures.of("kafka_log_log_logstartoffset", **place) == 1
    assert await figures.of("kafka_cluster_partition_highwatermark", **place) == 3
    assert await figures.of("kafka_log_log_numlogsegments", **place) == 2
    assert await figures.of(f"{REPLICAS}_produceridcount") == 3


async def test_logins_over_http_are_told_whether_they_failed_or_not(start_http: Any, browse: Any) -> None:
    node = await start_http(
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,HTTP:SASL_PLAINTEXT",
        **{"listener.name.http.sasl.enabled.mechanisms": "PLAIN"},
        sasl_plain_users='{"ann": "secret"}',
        connection_failed_authentication_delay_ms="1",
    )
    for password in ("wrong", "wrong again"):
        assert (await browse(node).get("/topics", auth=("ann", password))).status_code == 401
    figures = Figures(browse(node, auth=("ann", "secret")))
    names = [f"kafka_server_socketservermetrics_{how}_authentication_total" for how in ("failed", "successful")]
    assert await figures.all_of(*names) == [2, 1]


async def test_clients_whom_tls_keeps_out_are_told_by_listener(start_http: Any, browse: Any, tmp_path: Path) -> None:
    authority = Authority.make()
    certificate = authority.issue("node", ["127.0.0.1"])
    (tmp_path / "node.pem").write_bytes(certificate.key_pem() + certificate.pem)
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    node = await start_http(
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        ssl_client_auth="required",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(tmp_path / "node.pem"),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(tmp_path / "ca.pem"),
    )
    address = node._server.endpoints["SSL"]
    with contextlib.suppress(OSError):  # who has no certificate
        without = ssl.create_default_context(cadata=authority.pem.decode())
        reader, writer = await asyncio.open_connection(*address, ssl=without)
        assert await reader.read() == b""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"no TLS")
    with contextlib.suppress(OSError):
        assert await reader.read() == b""
    writer.close()
    await Figures(browse(node)).until("tidemark_tls_failures_total", 2, listener="SSL")


async def create(ask: Any, node_id: int, replicas: int) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=replicas)
    answer = await ask(node_id, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0


async def test_a_cluster_whose_nodes_stop_and_return_is_told_as_it_is(
    nodes: Any, browse: Any, ask: Callable[..., Awaitable[Any]]
) -> None:
    await nodes.start(http_listeners="HTTP://127.0.0.1:0", min_insync_replicas="2")
    await create(ask, nodes.controller, 3)
    partition = lambda: nodes.image(nodes.controller).topics["t"].partitions[0]  # noqa: E731
    await nodes.until(lambda: len(partition().isr) == 3)
    leader = partition().leader
    figures = {each: Figures(browse(node)) for each, node in nodes.running.items()}
    told = figures[leader]
    lacks = [
        f"{REPLICAS}_{name}partition{'s' if name == 'underreplicated' else 'count'}"
        for name in ("underreplicated", "atminisr", "underminisr")
    ]
    changes = [f"{REPLICAS}_isr{name}_total" for name in ("shrinks", "expands")]
    assert await told.all_of(*lacks) == [0, 0, 0]
    assert await told.all_of(f"{REPLICAS}_leadercount", f"{REPLICAS}_partitioncount") == [1, 1]
    assert [await each.of(f"{CONTROLLER}_activecontrollercount") for each in figures.values()].count(1) == 1
    before = await told.all_of(*changes)

    follower = next(each for each in nodes.voters if each not in (leader, nodes.controller))
    await nodes.stop(follower)
    await told.until(f"{CONTROLLER}_fencedbrokercount", 1)
    await told.until(f"{REPLICAS}_underreplicatedpartitions", 1)
    assert await told.all_of(*lacks) == [1, 1, 0]
    assert await told.of("kafka_cluster_partition_underreplicated", topic="t", partition=0) == 1
    assert await told.all_of(*changes) == [before[0] + 1, before[1]]
    await nodes.start(follower, http_listeners="HTTP://127.0.0.1:0", min_insync_replicas="2")
    await told.until(f"{REPLICAS}_underreplicatedpartitions", 0)
    assert await told.all_of(*changes) == [before[0] + 1, before[1] + 1]
    assert await told.of(f"{CONTROLLER}_fencedbrokercount") == 0
    (witness,) = set(nodes.voters) - {leader, follower}
    await the_next_leader_is_told(nodes, figures[witness], leader)


async def the_next_leader_is_told(nodes: Any, told: Figures, leader: int) -> None:
    elections = await told.of("kafka_controller_controllerstats_leaderelections_total")
    terms = await told.all_of(f"{RAFT}_currentepoch", f"{RAFT}_termchanges_total")
    was_controller = nodes.controller == leader
    await nodes.stop(leader)
    await told.until("kafka_controller_controllerstats_leaderelections_total", elections + 1)
    await told.until(f"{CONTROLLER}_fencedbrokercount", 1)
    await told.until(f"{RAFT}_currentleader", nodes.controller)
    assert await told.all_of(f"{CONTROLLER}_offlinepartitionscount", f"{CONTROLLER}_activebrokercount") == [0, 2]
    assert await told.of(f"{CONTROLLER}_preferredreplicaimbalancecount") == 1
    now = await told.all_of(f"{RAFT}_currentepoch", f"{RAFT}_termchanges_total")
    assert (now > terms) == was_controller
    await told.until(f"{RAFT}_commitlag", 0)
    await told.until(f"{RAFT}_applylag", 0)
