"""Clients at a quota of 5 MB/s, and what they get: `python bench/quota_rates.py [--java] [--quick]`.

A broker process, a librdkafka producer and consumer (with --java Kafka's ProducerPerformance and ConsumerPerformance,
too, from the jars of `make jars`), 20 s each, measured from their first record on. Everything is on this machine.
bench/quota_neighbour.py tells what others notice of them.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "compat-tests")]

from confluent_kafka import Consumer, Producer  # noqa: E402
from harness.broker_process import Tidemark  # noqa: E402

from tidemark.cli.main import main as tidemark  # noqa: E402

RATE = 5_000_000
SECONDS = 4.0 if "--quick" in sys.argv else 20.0
SIZE = 1000
HELD, JAVA = "held", "held-java"  # client ids with a quota: each begins with the half second's worth of a new client


def producer_rate(bootstrap: str, topic: str) -> float:
    sent = 0

    def acknowledged(error: object, message: Any) -> None:
        nonlocal sent
        assert error is None
        if time.perf_counter() - began < SECONDS:
            sent += len(message.value())

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": HELD, "queue.buffering.max.kbytes": 20_000})
    value, began = bytes(SIZE), time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        try:
            producer.produce(topic, value, on_delivery=acknowledged)
        except BufferError:
            producer.poll(0.01)
        else:
            producer.poll(0)
    producer.purge()
    return sent / SECONDS


def consumer_rate(bootstrap: str, topic: str) -> float:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "client.id": HELD, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    got, began = 0, 0.0
    while not began or time.perf_counter() - began < SECONDS:
        messages = consumer.consume(1000, 0.2)
        if messages and not began:
            began = time.perf_counter()
        got += sum(len(each.value()) for each in messages)
    consumer.close()
    return got / SECONDS


def java_rates(bootstrap: str, topic: str) -> tuple[float, float]:
    from harness.java_programs import run_tools

    count = int(RATE * SECONDS / SIZE)
    tools = "org.apache.kafka.tools."
    properties = Path(tempfile.mkdtemp()) / "held.properties"
    properties.write_text(f"client.id={JAVA}\n")
    sending = f"--topic {topic} --num-records {count} --record-size {SIZE} --throughput -1 --producer-props"
    getting = f"--topic {topic} --messages {count} --consumer.config {properties} --timeout 60000 --hide-header"
    sent, got = run_tools(
        [f"{tools}ProducerPerformance", *sending.split(), f"bootstrap.servers={bootstrap}", f"client.id={JAVA}"],
        [f"{tools}ConsumerPerformance", "--bootstrap-server", bootstrap, *getting.split()],
    )
    records = float(re.findall(r"([\d.]+) records/sec", sent.checked().stdout)[-1])
    fetched_mb_per_second = float(got.checked().lines[-1].split(",")[8])
    return records * SIZE, fetched_mb_per_second * (1 << 20)


def shown(name: str, rate: float) -> str:
    return f"{name:28} {rate / 1e6:5.2f} MB/s ({(rate / RATE - 1) * 100:+.1f} %)"


def main() -> None:
    broker = Tidemark(Path(tempfile.mkdtemp()))
    broker.start()
    try:
        at = ["-b", broker.bootstrap]
        for topic in ("held", "java"):
            tidemark(["topics", "create", topic, *at])
        filler = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(150_000):
            filler.produce("held", bytes(SIZE))
            filler.poll(0)
        filler.flush()
        limits = ["--producer-byte-rate", str(RATE), "--consumer-byte-rate", str(RATE)]
        for client_id in (HELD, JAVA):
            tidemark(["quotas", "set", "--for-client-id", client_id, *limits, *at])
        print(shown("librdkafka, produced", producer_rate(broker.bootstrap, "java")))
        print(shown("librdkafka, fetched", consumer_rate(broker.bootstrap, "held")))
        if "--java" in sys.argv:
            sent, got = java_rates(broker.bootstrap, "java")
            print(shown("Java, produced", sent))
            print(shown("Java, fetched", got))
    finally:
        broker.close()


if __name__ == "__main__":
    main()
