"""Real clients push their metrics (KIP-714), and Kafka's own commands ask for them and set levels of loggers."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest
from confluent_kafka import Producer
from harness.broker_process import Tidemark
from harness.java_programs import run_tools
from harness.ports import free_port
from harness.waiting import eventually

CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
SUBSCRIPTION = "--entity-type client-metrics --entity-name all"
LOGGERS = "--entity-type broker-loggers --entity-name 0"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"


class Collector(BaseHTTPRequestHandler):
    """Where metrics are forwarded to."""

    received: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Where clients connect, and where its metrics are."""
    port = free_port()
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        settings = {
            "http.listeners": f"HTTP://127.0.0.1:{port}",
            "tidemark.telemetry.otlp.endpoint": f"http://127.0.0.1:{collector.server_port}/v1/metrics",
        }
        process = Tidemark(tmp_path_factory.mktemp("broker"), settings=settings)
        process.start()
        yield process.bootstrap, f"http://127.0.0.1:{port}/metrics"
        process.stop()
        collector.shutdown()


def scraped(url: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        return str(answer.read().decode())


def test_kafkas_commands_subscribe_and_java_and_librdkafka_push(broker: tuple[str, str]) -> None:
    bootstrap, metrics = broker
    words = "--alter --name all --metrics org.apache.kafka. --interval 100 --match client_id=app.*"
    given = "--topic t --num-records 30 --record-size 10 --throughput 20 --producer-props client.id=app-java"
    altered, listed, described, wrong, changed, shown, produced, level, levels, unknown = run_tools(
        [CLIENT_METRICS, "--bootstrap-server", bootstrap, *words.split()],
        [CLIENT_METRICS, "--bootstrap-server", bootstrap, "--list"],
        [CLIENT_METRICS, "--bootstrap-server", bootstrap, "--describe", "--name", "all"],
        [CLIENT_METRICS, "--bootstrap-server", bootstrap, "--alter", "--name", "all", "--match", "nobody=x"],
        [CONFIGS, "--bootstrap-server", bootstrap, "--alter", *SUBSCRIPTION.split(), "--add-config", "interval.ms=200"],
        [CONFIGS, "--bootstrap-server", bootstrap, "--describe", *SUBSCRIPTION.split()],
        [PERFORMANCE, *given.split(), f"bootstrap.servers={bootstrap}"],
        [CONFIGS, "--bootstrap-server", bootstrap, "--alter", *LOGGERS.split(), "--add-config", "tidemark.raft=DEBUG"],
        [CONFIGS, "--bootstrap-server", bootstrap, "--describe", *LOGGERS.split()],
        [CONFIGS, "--bootstrap-server", bootstrap, "--alter", *LOGGERS.split(), "--add-config", "no.such=DEBUG"],
    )
    altered.checked()
    assert listed.checked().lines == ["all"]
    assert "interval.ms=100" in described.checked().stdout
    assert wrong.code == 1
    changed.checked()
    assert "interval.ms=200 sensitive=false" in shown.checked().stdout
    produced.checked()
    pushes = re.search(r"^kafka_server_client_metrics_push_total (\d+)", scraped(metrics), re.MULTILINE)
    assert pushes is not None
    assert int(pushes[1]) >= 2
    assert any(b"app-java" in each and b"org.apache.kafka.producer" in each for each in Collector.received)
    level.checked()
    assert "tidemark.raft=DEBUG sensitive=false" in levels.checked().stdout
    assert unknown.code == 1

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "app-c", "log_level": 0})
    producer.produce("t", b"one")
    assert producer.flush(30) == 0
    told = re.compile(r'^kafka_client_producer_\w+\{client_id="app-c",.*(?:librdkafka|confluent)', re.MULTILINE)
    # A client whose first question was lost, with the connection that it bootstrapped from, asks again after 30 s.
    eventually(lambda: told.search(scraped(metrics)), seconds_max=60)
    del producer

    [deleted, empty] = run_tools(
        [CLIENT_METRICS, "--bootstrap-server", bootstrap, "--delete", "--name", "all"],
        [CLIENT_METRICS, "--bootstrap-server", bootstrap, "--list"],
    )
    deleted.checked()
    assert empty.checked().stdout.strip() == ""
