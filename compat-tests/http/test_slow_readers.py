"""Hundreds of clients that ask for more than they read: what they hold in the broker's memory has a bound, and is told.
The records are compressed, so that a few kilobytes on disk are megabytes of JSON."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka import Producer
from harness.broker_log import check_log
from harness.broker_process import Tidemark
from harness.ports import free_port
from harness.waiting import eventually

READERS = 500
LIMIT_BYTES = 16 << 20
# 40 reads under way may each have some more; Python keeps memory that was freed; 500 connections take some themselves.
RESIDENT_BYTES_MAX = LIMIT_BYTES + (100 << 20)
RECORDS = 1_000
LEFT_MAX = LIMIT_BYTES // (128 << 10) + 20  # each of those who are not cut off holds so much at least
SETTINGS = {
    "http.max.connections": "700",
    "http.queued.max.bytes": str(LIMIT_BYTES),
    "http.request.timeout.ms": "600000",  # it is the memory that they are cut off for
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[Tidemark, int]]:
    port = free_port()
    broker = Tidemark(tmp_path, settings={**SETTINGS, "http.listeners": f"HTTP://127.0.0.1:{port}"})
    broker.start()
    yield broker, port
    broker.close()
    check_log(broker)


def slow_reader(port: int, path: str) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


def answer_bytes(http: httpx.Client) -> int:
    found = re.search(r'^tidemark_memory_bytes\{part="http_answers"\} (\d+)', http.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_500_slow_readers_hold_no_more_than_they_may_and_others_are_served(broker: tuple[Tidemark, int]) -> None:
    process, port = broker
    compressed = {"compression.type": "zstd", "linger.ms": 1000, "batch.size": 1_000_000, "log_level": 2}
    producer = Producer({"bootstrap.servers": process.bootstrap, **compressed})
    http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30)
    assert http.post("/topics", json={"name": "t", "partitions": 1}).status_code == 201
    for number in range(RECORDS):
        producer.produce("t", b"%04d" % number + b"x" * 1000)
    assert producer.flush(30) == 0
    of_broker = psutil.Process(process.pid)
    before, most_held, most_resident = of_broker.memory_info().rss, 0, 0
    paths = ("/topics/t/stream", "/topics/t/partitions/0/records?max_bytes=4194304")
    with contextlib.ExitStack() as opened:
        for number in range(READERS):
            opened.enter_context(slow_reader(port, paths[number % 2]))

        def all_have_their_turn() -> bool:
            """Others are served meanwhile: they post, and read all of it."""
            nonlocal most_held, most_resident
            assert http.post("/topics/other/records", json={"value": 1}).status_code == 200
            most_held = max(most_held, answer_bytes(http))
            most_resident = max(most_resident, of_broker.memory_info().rss - before)
            return connected_count(of_broker) <= LEFT_MAX

        eventually(all_have_their_turn, seconds_max=240)  # 14 on a quiet machine
        assert read_all(http) == list(range(RECORDS))
    assert 0 < most_held <= LIMIT_BYTES + 40 * (256 << 10)
    assert most_resident <= RESIDENT_BYTES_MAX
    eventually(lambda: answer_bytes(http) == 0)
    http.close()


def connected_count(of_broker: psutil.Process) -> int:
    return sum(each.status == psutil.CONN_ESTABLISHED for each in of_broker.net_connections("tcp"))


def read_all(http: httpx.Client) -> list[int]:
    found: list[int] = []
    with http.stream("GET", "/topics/t/stream") as answer:
        for line in answer.iter_lines():
            if line:
                found.append(int(json.loads(line)["value"][:4]))
            if len(found) == RECORDS:
                break
    return found
