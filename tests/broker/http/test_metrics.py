"""/metrics of a node: in both formats, true to what clients did, and never holding up the event loop."""

import asyncio
import gc
import re
import socket
import statistics
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.broker.server.loop_watch import LoopWatch, frame_of
from tidemark.broker.http.connection import HttpConnection
from tidemark.broker.http.waits import begin, waiting
from tidemark.broker.logs.events import fields_of
from tidemark.broker.metrics import docs
from tidemark.broker.metrics.metric import Kind
from tidemark.broker.metrics.registry import Metrics
from tidemark.broker.metrics.topics import TopicMetrics
from tidemark.broker.replication.traffic import TopicTraffic
from tidemark.protocol.messages.alter_client_quotas import AlterationData, AlterClientQuotasRequest, EntityData, OpData
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

ROOT = Path(__file__).parents[3]
MANY = 2_000  # partitions; ten thousand take a minute to make


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
    for phase in ("total", "local", "remote", "requestqueue", "responsesend"):
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


async def test_how_long_answers_take_to_be_sent_is_told_by_api(start_http: Any, browse: Any, connect: Any) -> None:
    node = await start_http()
    kafka = await connect(node)
    await kafka.create("t")
    for _ in range(8):
        await kafka.produce("t", b"x" * 900_000)
    name = "kafka_network_requestmetrics_responsesendtime_seconds"
    before = await scraped(browse(node))
    assert of(before, f"{name}_sum", request="Produce") == 0
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, node.address)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 << 20)
        topic = FetchTopic(topic="t", partitions=[partition])
        asked = FetchRequest(max_wait_ms=0, max_bytes=8 << 20, session_epoch=-1, topics=[topic])
        await loop.sock_sendall(slow, frame_of(asked, 12))
        left = int.from_bytes(await loop.sock_recv(slow, 4), "big")
        await asyncio.sleep(0.2)  # it is in no hurry
        while left:
            left -= len(await loop.sock_recv(slow, min(left, 1 << 20)))
        async with asyncio.timeout(10):
            while not of(samples := await scraped(browse(node)), f"{name}_sum", request="Fetch") > 0.15:
                await asyncio.sleep(0.05)
    assert of(samples, f"{name}_sum", request="Produce") == 0
    assert of(samples, f"{name}_bucket", request="Fetch", le="0.1") == 0


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
    await client.get("/livez")  # a scrape does not count itself yet
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


async def test_a_replica_whose_log_has_failed_since_is_offline(start_http: Any, browse: Any) -> None:
    node = await start_http()
    client = browse(node)
    await client.post("/topics", json={"name": "t", "partitions": 2})
    assert "kafka_server_replicamanager_offlinereplicacount 0" in (await client.get("/metrics")).text
    node._replicas.table.topics["t"].partitions[0].log.fail("syncing failed")
    assert (await client.post("/topics/t/records", json={"value": 1, "partition": 0})).status_code == 503
    assert "kafka_server_replicamanager_offlinereplicacount 1" in (await client.get("/metrics")).text


@pytest.mark.alone
async def test_a_scrape_of_many_partitions_holds_nobody_up(
    start_http: Any, browse: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_http()
    kafka = await connect(node)
    await kafka.create("many", partitions=MANY)
    client = browse(node)
    async with asyncio.timeout(120):
        while (await client.get("/metrics")).text.count("kafka_log_log_size{") < MANY:
            await asyncio.sleep(0.2)
    other = await connect(node)
    await other.ask(FindCoordinatorRequest(key="g", coordinator_keys=["g"]))
    gc.collect()
    gc.freeze()
    watch, is_over, waits = LoopWatch(monkeypatch), False, []

    async def ask_meanwhile() -> None:
        while not is_over:
            began = time.perf_counter()
            await other.ask(FindCoordinatorRequest(key="g", coordinator_keys=["g"]))
            waits.append(time.perf_counter() - began)

    asking = asyncio.create_task(ask_meanwhile())
    reader, writer = await asyncio.open_connection(*node.http_endpoints["HTTP"])
    began = time.thread_time()
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    size = 0
    while data := await reader.read(1 << 16):
        size += len(data)
    worked, is_over = time.thread_time() - began, True
    await asking
    writer.close()
    longest, what = watch.take()
    gc.unfreeze()
    assert size > MANY * 5 * 40
    assert longest < 0.02, what
    assert worked < 1.0 * MANY / 10_000, (
        "half a second of work at ten thousand, and as much of those that ask meanwhile"
    )
    assert statistics.median(waits) < 0.02, "another connection is served all the time"


async def test_a_scrape_of_ten_thousand_partitions_is_done_in_short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collectors and the writer are the real ones; the partitions, which take a minute to make, are not."""
    replicas = [fake_partition(index) for index in range(10_000)]
    topics = {
        f"t{number}": SimpleNamespace(
            name=f"t{number}",
            offline={},
            traffic=TopicTraffic(),
            partitions={each.index: each for each in some},
            replicas=lambda some=some: iter(some),
        )
        for number, some in enumerate((replicas[:5_000], *(replicas[at : at + 50] for at in range(5_000, 10_000, 50))))
    }
    table: Any = SimpleNamespace(topics=topics, offline_directories={}, past_traffic=TopicTraffic())
    cleaner: Any = SimpleNamespace(uncleanable=(), cleaned_logs=0, bytes_before=0, bytes_after=0)
    scrubber: Any = SimpleNamespace(read_logs=0, mended_segments=0, damaged_logs=0, oldest_seconds=lambda: 0.0)
    collector = TopicMetrics(table, cleaner, scrubber, detail=lambda: "partition")
    metrics = Metrics([collector], watch_clients=lambda: None)
    await metrics.exposition(open_metrics=False)  # Python makes it quicker
    watch, began = LoopWatch(monkeypatch), time.thread_time()
    _, text = await metrics.exposition(open_metrics=False)
    worked, (longest, what) = time.thread_time() - began, watch.take()
    assert text.count(b"kafka_log_log_size{") == 10_000
    assert longest < 0.02, what
    assert worked < 0.5


def fake_partition(index: int) -> Any:
    log = SimpleNamespace(
        size_bytes=1 << 20, start_offset=0, end_offset=1000, segment_count=1, producer_states=(), is_offline=False
    )
    return SimpleNamespace(
        topic="t",
        index=index,
        log=log,
        high_watermark=1000,
        leadership=SimpleNamespace(isr=(1, 2, 3), replicas=(1, 2, 3)),
        config=SimpleNamespace(min_insync_replicas=2),
        too_few_in_sync=False,
        count_records=lambda: None,
    )


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


SUFFIXES = {
    Kind.COUNTER: ("_total",),
    Kind.GAUGE: ("",),
    Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
    Kind.SUMMARY: ("_sum", "_count"),
    Kind.INFO: ("_info",),
}


@pytest.mark.parametrize("path", ["prometheus/tidemark-rules.yml", "grafana/tidemark.json"])
def test_rules_and_dashboard_ask_for_metrics_that_there_are(path: str) -> None:
    """Prometheus finds nothing wrong with a rule about a metric that nobody tells: it just never fires."""
    declared = [metric for section in docs.SECTIONS.values() for metric in section]
    told = {metric.name + suffix for metric in declared for suffix in SUFFIXES[metric.kind]}
    text = (ROOT / "config" / path).read_text(encoding="utf-8")
    asked = set(re.findall(r"\b(?:kafka|tidemark|process)_\w+", text))
    assert len(asked) > 10
    assert asked <= told


def test_no_metric_is_declared_twice() -> None:
    names = [metric.name for section in docs.SECTIONS.values() for metric in section]
    assert len(names) == len(set(names))


async def test_of_those_who_scrape_at_once_one_sends_the_text_in_each_turn(
    start_http: Any, dial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, asked, sent, go_on = 0, 0, Counter[int](), asyncio.Event()
    run_once, exposition = asyncio.BaseEventLoop._run_once, Metrics.exposition  # type: ignore[attr-defined]
    collected, send = Metrics._collected, HttpConnection._send

    def turn_counted(self: asyncio.BaseEventLoop) -> None:
        nonlocal turns
        turns += 1
        run_once(self)

    async def asked_counted(self: Metrics, *, open_metrics: bool) -> tuple[str, bytes]:
        nonlocal asked
        asked += 1
        return await exposition(self, open_metrics=open_metrics)

    async def collected_late(self: Metrics, open_metrics: bool) -> tuple[str, bytes]:
        await go_on.wait()
        return await collected(self, open_metrics)

    async def sent_counted(self: HttpConnection, answer: Any, method: str, *, goes_on: bool) -> None:
        sent[turns] += 1
        await send(self, answer, method, goes_on=goes_on)

    monkeypatch.setattr(asyncio.BaseEventLoop, "_run_once", turn_counted)
    monkeypatch.setattr(Metrics, "exposition", asked_counted)
    monkeypatch.setattr(Metrics, "_collected", collected_late)
    monkeypatch.setattr(HttpConnection, "_send", sent_counted)
    node = await start_http()
    clients = [await dial(node) for _ in range(20)]
    for client in clients:
        client.writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(20.0):
        while asked < len(clients):
            await asyncio.sleep(0)
    go_on.set()
    assert [status for status, _ in [await client.answer() for client in clients]] == [200] * len(clients)
    assert set(sent.values()) == {1}, sent


async def test_http_requests_are_counted_by_route_and_status(start_http: Any, browse: Any) -> None:
    client = browse(await start_http())
    for value in ({"value": 1}, {"value": 2}, {"valeu": 3}):
        await client.post("/topics/t/records", json=value)
    await client.get("/nowhere/at/all")
    samples = await scraped(client)
    route = {"method": "POST", "path": "/topics/{topic}/records"}
    assert of(samples, "tidemark_http_requests_total", **route, status="200") == 2
    assert of(samples, "tidemark_http_requests_total", **route, status="400") == 1
    assert of(samples, "tidemark_http_request_seconds_count", **route) == 3
    assert of(samples, "tidemark_http_requests_total", method="", path="", status="404") == 1


async def test_a_slow_http_request_is_logged_and_a_poll_that_waits_is_none(
    start_http: Any, browse: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = browse(await start_http(tidemark_log_slow_request_ms="0"))
    await client.post("/topics/t/records", json={"value": "secret"})
    await client.get("/topics/t/partitions/0/records")
    told = [each for each in caplog.records if each.name == "tidemark.requests" and "/topics" in each.getMessage()]
    assert ["POST /topics/{topic}/records" in each.getMessage() for each in told] == [True]
    about = fields_of(told[0])
    assert {"topic": "t", "status": 200, "listener": "HTTP"}.items() <= about.items()
    assert "secret" not in str(about)


async def test_a_slow_http_request_tells_how_long_it_waited(
    start_http: Any, browse: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_http(tidemark_log_slow_request_ms="50")
    client = browse(node)
    await (await connect(node)).create("t")
    node._replicas.table.lease_until = 0.0  # and so nobody leads, for a moment
    asyncio.get_running_loop().call_later(0.15, setattr, node._replicas.table, "lease_until", None)
    assert (await client.post("/topics/t/records", json={"value": 1})).status_code == 200
    [told] = [fields_of(each) for each in caplog.records if each.name == "tidemark.requests" and "slow" in each.msg]
    assert told["remote_ms"] > 50
    assert told["total_ms"] == pytest.approx(told["local_ms"] + told["remote_ms"], abs=0.01)


async def test_what_is_waited_for_at_the_same_time_counts_once() -> None:
    waits = begin()

    async def wait() -> None:
        with waiting():
            await asyncio.sleep(0.05)

    await asyncio.gather(wait(), wait())
    assert 0.05 <= waits.seconds < 0.1
    with waiting():
        assert waits.seconds > 0.05
    assert begin().seconds == 0
