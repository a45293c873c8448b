"""Spark reads a topic: through the official connector, with `format("tidemark")` by files and by protocol; pipelines
read one; and a pipeline's cases are run."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from confluent_kafka import Producer

from bench.brokers import Running, write_dirty_pages
from bench.cases import LOADERS, Case, Round, Scale, check_delivered, fresh_name, sample
from bench.loaders.process import Load
from bench.topics import topic
from tidemark.pipeline.generators import clickstream

PARTITIONS = 8
SIZE = 1000
MASTER = "local[2]"
CLICKS_PER_SECOND = 1000  # of event time, not of ours
LARGE_FETCH = {
    "kafka.max.partition.fetch.bytes": 16 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.max.poll.records": 20_000,
}


def _ways(broker: Running, name: str) -> dict[str, Any]:
    common = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": name}
    return {
        "connector": {"format": "kafka", "options": common},
        "tuned": {"format": "kafka", "options": {**common, **LARGE_FETCH}},
        "files": {"format": "tidemark", "options": {**common, "tidemark.access": "files"}},
        "protocol": {"format": "tidemark", "options": {**common, "tidemark.access": "protocol"}},
    }


@contextmanager
def _read(broker: Running, scale: Scale) -> Iterator[Round]:
    with topic(broker, fresh_name("spark-read"), partitions=PARTITIONS) as name:
        _fill(broker, name, scale)
        write_dirty_pages()

        def one_round() -> dict[str, float]:
            parameters = {
                "master": MASTER, "broker_pid": broker.pid, "size": SIZE, "passes": 1, "ways": _ways(broker, name),
            }  # fmt: skip
            (report,) = sample(broker, [Load(module="spark_read", parameters=parameters)]).reports
            figures: dict[str, float] = {}
            for way, taken in report["ways"].items():
                payload = taken["records"] * SIZE
                figures[f"spark-read.{way}"] = payload / taken["wall_s"] / 1e6
                figures[f"spark-read.{way}_cpu"] = taken["cpu_s"] / (payload / 1e9)
            for way in ("files", "protocol"):
                figures[f"spark-read.{way}_share"] = figures[f"spark-read.{way}"] / figures["spark-read.connector"]
            return figures

        yield one_round


def _fill(broker: Running, name: str, scale: Scale) -> None:
    client = {"bootstrap.servers": broker.bootstrap}
    share = {"topic": name, "size": SIZE, "client": client, "partitions": PARTITIONS, "batch": 1000}
    share["records"] = scale.bytes_1k // SIZE // LOADERS
    firsts = range(0, PARTITIONS, PARTITIONS // LOADERS)
    loads = [Load(module="produce", parameters={**share, "first_partition": first}) for first in firsts]
    check_delivered(broker, name, sample(broker, loads).records, partitions=PARTITIONS)


@contextmanager
def _clickstream(broker: Running, scale: Scale) -> Iterator[Round]:
    with ExitStack() as stack:
        names = itertools.count()

        def one_round() -> dict[str, float]:
            # A topic of its own for each round: what the last one's probes left in it is no part of the backlog.
            stem = f"{fresh_name('clicks')}-{next(names)}"
            name = stack.enter_context(topic(broker, stem, partitions=2))
            stack.enter_context(topic(broker, f"{name}.counts", partitions=1))
            fill_with_clicks(broker.bootstrap, name, scale.clicks)
            write_dirty_pages()
            parameters = {
                "master": MASTER, "broker_pid": broker.pid, "bootstrap": broker.bootstrap, "topic": name,
                "records": scale.clicks, "probes": scale.click_probes,
            }  # fmt: skip
            (report,) = sample(broker, [Load(module="spark_pipeline", parameters=parameters)]).reports
            return {
                "spark-clickstream.rate": scale.clicks / report["wall_s"],
                "spark-clickstream.cpu": report["cpu_s"] / (scale.clicks / 1e6),
                "spark-clickstream.latency": report["latency_s"],
            }

        yield one_round


def fill_with_clicks(bootstrap: str, name: str, count: int) -> None:
    sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "partitioner": "murmur2_random"})
    for made in itertools.islice(clickstream.records(Random(1), rate=CLICKS_PER_SECOND), count):
        _produce(sender, name, made.value, made.key)
    if sender.flush(60):
        raise RuntimeError("clicks were not acknowledged")


@contextmanager
def _upsert(broker: Running, scale: Scale) -> Iterator[Round]:
    """Changes of a tenth as many keys, merged into a Delta table in ten batches."""
    with ExitStack() as stack:

        def one_round() -> dict[str, float]:
            name = stack.enter_context(topic(broker, fresh_name("changes"), partitions=2))
            fill_with_changes(broker.bootstrap, name, scale.changes)
            write_dirty_pages()
            parameters = {
                "master": MASTER, "broker_pid": broker.pid, "bootstrap": broker.bootstrap, "topic": name,
                "records": scale.changes, "keys": scale.changes // 10,
            }  # fmt: skip
            (report,) = sample(broker, [Load(module="spark_upsert", parameters=parameters)]).reports
            return {
                "spark-upsert.rate": scale.changes / report["wall_s"],
                "spark-upsert.cpu": report["cpu_s"] / (scale.changes / 1e6),
            }

        yield one_round


def fill_with_changes(bootstrap: str, name: str, count: int) -> None:
    sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "partitioner": "murmur2_random"})
    chance = Random(1)
    for number in range(count):
        key = chance.randrange(count // 10)
        value = f'{{"id": {key}, "amount": {number}, "gone": {"true" if number % 50 == 0 else "false"}}}'
        _produce(sender, name, value.encode(), str(key).encode())
    if sender.flush(60):
        raise RuntimeError("changes were not acknowledged")


@contextmanager
def _pipeline_tests(broker: Running, scale: Scale) -> Iterator[Round]:
    """`tidemark pipeline test` on a broker of its own; which one this is beside does not matter."""

    def one_round() -> dict[str, float]:
        (report,) = sample(broker, [Load(module="pipeline_cases", parameters={})]).reports
        return {
            "pipeline-tests.rate": 60 * (report["cases"] - 1) / report["rest_s"],
            "pipeline-tests.first": report["first_s"],
        }

    yield one_round


def _produce(sender: Producer, name: str, value: bytes | None, key: bytes | None) -> None:
    while True:
        try:
            return sender.produce(name, value, key)
        except BufferError:
            sender.poll(0.1)


SPARK_CASES: dict[str, Case] = {
    "spark-read": _read,
    "spark-clickstream": _clickstream,
    "spark-upsert": _upsert,
    "pipeline-tests": _pipeline_tests,
}
# Every round is a session of its own, which practises each way of reading before it takes the time.
UNREHEARSED_SPARK = frozenset(SPARK_CASES)
