"""Spark reads a topic: through the official connector, and with `format("tidemark")` by files and by protocol."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.brokers import Running, settle
from bench.cases import LOADERS, Case, Round, Scale, check_delivered, fresh_name, sample
from bench.loaders.process import Load
from bench.topics import topic

PARTITIONS = 8
SIZE = 1000
MASTER = "local[2]"
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
        settle()

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


SPARK_CASES: dict[str, Case] = {"spark-read": _read}
# Every round is a session of its own, which practises each way of reading before it takes the time.
UNREHEARSED_SPARK = frozenset(SPARK_CASES)
