"""Clients at a quota of 5 MB/s, and one without a quota beside them: `python bench/quota_rates.py [--java] [--quick]`.

A broker process, a librdkafka producer and consumer (with --java Kafka's ProducerPerformance and ConsumerPerformance,
too, from the jars of `make jars`), 20 s each, measured from their first record on. Beside them another client produces
100 B at a time and waits for each answer, alone before and after: its rate and its p99. Everything is on this machine.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "compat-tests")]

from confluent_kafka import Consumer, Producer  # noqa: E402
from harness.batches import batch_of  # noqa: E402
from harness.broker_process import Tidemark  # noqa: E402
from harness.requests import produce  # noqa: E402
from harness.wire import Wire  # noqa: E402

from tidemark.cli.main import main as tidemark  # noqa: E402

RATE = 5_000_000
SECONDS = 4.0 if "--quick" in sys.argv else 20.0
SIZE = 1000
HELD, JAVA = "held", "held-java"  # client ids with a quota: each begins with the half second's worth of a new client


def neighbour(host: str, port: int, topic: str, seconds: float) -> dict[str, float]:
    took = []
    with Wire(host, port) as wire:
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            assert produce(wire, topic, batch_of(bytes(100)), acks=1).error_code == 0
            took.append(time.perf_counter() - began)
            time.sleep(0.001)
    return {"rate": len(took) / seconds, "p99_ms": statistics.quantiles(took, n=100)[98] * 1000}


def beside(broker: Any, work: Callable[[], float]) -> tuple[float, dict[str, float]]:
    command = [sys.executable, __file__, "neighbour", broker.host, str(broker.port), str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        rate = work()
        assert process.stdout is not None
        return rate, json.loads(process.stdout.read())


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
        for topic in ("held", "java", "other"):
            tidemark(["topics", "create", topic, *at])
        filler = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(150_000):
            filler.produce("held", bytes(SIZE))
            filler.poll(0)
        filler.flush()
        alone = neighbour(broker.host, broker.port, "other", SECONDS)
        limits = ["--producer-byte-rate", str(RATE), "--consumer-byte-rate", str(RATE)]
        for client_id in (HELD, JAVA):
            tidemark(["quotas", "set", "--for-client-id", client_id, *limits, *at])
        produced, with_producer = beside(broker, lambda: producer_rate(broker.bootstrap, "java"))
        print(shown("librdkafka, produced", produced))
        fetched, with_consumer = beside(broker, lambda: consumer_rate(broker.bootstrap, "held"))
        print(shown("librdkafka, fetched", fetched))
        again = neighbour(broker.host, broker.port, "other", SECONDS)
        besides = {"alone": alone, "producer": with_producer, "consumer": with_consumer, "alone again": again}
        for name, figures in besides.items():
            rate, p99 = figures["rate"] / alone["rate"], figures["p99_ms"] / alone["p99_ms"]
            told = f"{figures['rate']:.0f}/s ({rate:.2f}), p99 {figures['p99_ms']:.2f} ms ({p99:.2f})"
            print(f"neighbour of: {name:14} {told}")
        if "--java" in sys.argv:
            sent, got = java_rates(broker.bootstrap, "java")
            print(shown("Java, produced", sent))
            print(shown("Java, fetched", got))
    finally:
        broker.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["neighbour"]:
        print(json.dumps(neighbour(sys.argv[2], int(sys.argv[3]), "other", float(sys.argv[4]))))
    else:
        main()
