"""Compaction beside Apache Kafka: `python -m bench.compaction --mb 1000 --keys 1000000 --value 100`.

Topics, one for each round, are filled through librdkafka while they are not compacted yet. Then a topic's policy is
changed, and until the broker's cleaner-offset-checkpoint tells that it is clean, a producer sends one record at a time:
its latencies are compared with those before. Figures: MB per second of wall time and of the broker's CPU (all its
processes, less what the producer alone costs it), peak memory, p99 of produce.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from bench.rounds import BrokerProcess, Figures, add_options, run

WARM_UP_SECONDS = 2
QUIET_SECONDS = 5
SECONDS_MAX = 400
SETTINGS = {"log.cleaner.backoff.ms": "500", "log.retention.ms": "-1"}
SEGMENTS = 10


def fill(bootstrap: str, topic: str, *, size_bytes: int, keys: int, value_bytes: int) -> None:
    chance = random.Random(1)
    value = chance.randbytes(value_bytes)
    sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 16384, "acks": 1})
    for number in range(size_bytes // (value_bytes + 24)):
        while True:
            try:
                sender.produce(topic, value, key=b"key-%08d" % chance.randrange(keys), partition=0)
                break
            except BufferError:
                sender.poll(0.1)
        if number % 10_000 == 0:
            sender.poll(0)
    assert sender.flush(120) == 0


class Latencies:
    """Of records that are sent one by one."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
        self._topic = topic

    def measure(self, seconds: float) -> list[float]:
        found, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            self._sender.produce(self._topic, b"x" * 100, partition=0)
            self._sender.flush(30)
            found.append(time.perf_counter() - begin)
            time.sleep(0.002)
        return found


def cpu_seconds(process: psutil.Process) -> tuple[float, float]:
    """Of a broker and the processes that it started: in all, and in the kernel."""
    times = process.cpu_times()
    user, system = times.user + times.children_user, times.system + times.children_system
    for child in process.children(recursive=True):
        try:
            own = child.cpu_times()
        except psutil.Error:
            continue
        user, system = user + own.user, system + own.system
    return user + system, system


def since(process: psutil.Process, before: tuple[float, float], *, share_of: float = 1.0) -> tuple[float, float]:
    total, system = cpu_seconds(process)
    return (total - before[0]) / share_of, (system - before[1]) / share_of


def memory_bytes(process: psutil.Process) -> tuple[int, int]:
    """Of the broker, and of the processes that it started."""
    children = 0
    for child in process.children(recursive=True):
        try:
            children += child.memory_info().rss
        except psutil.Error:
            continue
    return process.memory_info().rss, children


def is_cleaned(directory: Path, topic: str) -> bool:
    found = list(directory.rglob("cleaner-offset-checkpoint"))
    return any(
        line.startswith(f"{topic} 0 ") and not line.endswith(" 0")
        for path in found
        for line in path.read_text().splitlines()
    )


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] * 1000


def prepare(broker: BrokerProcess, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [f"log{number}" for number in range(options.rounds)]
    for topic in ("other", *topics):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    for topic in topics:
        fill(broker.bootstrap, topic, size_bytes=options.mb * 1_000_000, keys=options.keys, value_bytes=options.value)


def size_mb(broker: BrokerProcess, topic: str) -> float:
    return sum(path.stat().st_size for path in broker.data.glob(f"{topic}-0/*.log")) / 1e6


def compact(bootstrap: str, topic: str) -> None:
    changes = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in changes.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def measure(broker: BrokerProcess, number: int) -> Figures:
    topic = f"log{number}"
    process = psutil.Process(broker.pid)
    latencies = Latencies(broker.bootstrap, "other")
    latencies.measure(WARM_UP_SECONDS)
    begin, used = time.monotonic(), cpu_seconds(process)
    quiet = latencies.measure(QUIET_SECONDS)
    idle = since(process, used, share_of=time.monotonic() - begin)

    before = size_mb(broker, topic)
    compact(broker.bootstrap, topic)
    begin, used, busy, memory, worker = time.monotonic(), cpu_seconds(process), [], 0, 0
    while not is_cleaned(broker.data, topic) and time.monotonic() < begin + SECONDS_MAX:
        busy += latencies.measure(0.25)
        own, children = memory_bytes(process)
        memory, worker = max(memory, own), max(worker, children)
    seconds = time.monotonic() - begin
    cpu, in_kernel = (total - each * seconds for total, each in zip(since(process, used), idle, strict=True))
    return {
        "MB before": before,
        "MB after": size_mb(broker, topic),
        "MB/s": before / seconds,
        "CPU s": cpu,
        "of these in the kernel": in_kernel,
        "MB per CPU s": before / cpu,
        "broker's RSS, MB": memory / 1e6,
        "cleaning process's RSS, MB": worker / 1e6,
        "produce p50, ms": statistics.median(quiet) * 1000,
        "produce p50 meanwhile, ms": statistics.median(busy) * 1000,
        "produce p99, ms": percentile(quiet, 0.99),
        "produce p99 meanwhile, ms": percentile(busy, 0.99),
        "p99 meanwhile to quiet": percentile(busy, 0.99) / percentile(quiet, 0.99),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=100)
    add_options(parser)
    options = parser.parse_args()
    settings = {**SETTINGS, "log.segment.bytes": str(max(options.mb * 1_000_000 // SEGMENTS, 1 << 20))}
    run(options, settings, fill=lambda broker: prepare(broker, options), measure=measure)


if __name__ == "__main__":
    main()
