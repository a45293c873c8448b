"""The shipped clickstream pipeline in one Spark session: a backlog read to its end, then single events followed."""

from __future__ import annotations

import datetime
import io
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.brokers import ROOT
from bench.loaders.process import serve
from bench.loaders.spark_read import cpu_s
from tidemark.pipeline.generators import clickstream
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spark import session
from tidemark.pipeline.spec import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = ROOT / "config" / "pipelines" / "clickstream.yaml"
BACKGROUND_RATE = 500
PROBE_EVERY_S = 0.7  # no multiple of the trigger's second: probes fall into every part of it
PROBE_SECONDS_MAX = 120.0


class Clickstream:
    """The pipeline on one topic of one broker, as often as it is wanted, each time with a checkpoint of its own."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._topic = topic
        self._scratch = Path(tempfile.mkdtemp(prefix="bench-pipeline-"))
        self._runs = itertools.count()

    def backlog_s(self) -> float:
        began = time.monotonic()
        self._runner(once=True).run()
        return time.monotonic() - began

    def latencies_s(self, *, probes: int) -> list[float]:
        live = self._runner("sinks.counts-topic.mode=update", "sources.clicks.start=latest", once=False)
        thread = threading.Thread(target=live.run)
        thread.start()
        try:
            with _background(self._bootstrap, self._topic):
                return _probe(self._bootstrap, self._topic, count=probes)
        finally:
            live.stop_soon()
            thread.join()

    def _runner(self, *overrides: str, once: bool) -> Runner:
        place, topic = self._scratch / str(next(self._runs)), self._topic
        ours = [
            f"bootstrap={self._bootstrap}", f"sources.clicks.topic={topic}", f"checkpoint={place}/checkpoint",
            f"sources.clicks.dead_letter_topic={topic}.dead", f"sinks.counts-topic.topic={topic}.counts",
            f"sinks.sessions-lake.path={place}/sessions", "metrics_port=0",
        ]  # fmt: skip
        return Runner(self._spark, load(FILE, overrides=[*ours, *overrides]), once=once, out=io.StringIO())


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    spark = session("bench", master=parameters["master"], settings={"spark.ui.enabled": "false"})
    broker = psutil.Process(int(parameters["broker_pid"]))
    pipeline = Clickstream(spark, str(parameters["bootstrap"]), str(parameters["topic"]))

    def work() -> dict[str, Any]:
        pipeline.backlog_s()
        began_cpu = cpu_s(broker)
        wall_s = pipeline.backlog_s()
        taken = {"wall_s": wall_s, "cpu_s": cpu_s(broker) - began_cpu}
        found = pipeline.latencies_s(probes=int(parameters["probes"]))
        return {"records": int(parameters["records"]), **taken, "latency_s": statistics.median(found)}

    return work


@contextmanager
def _background(bootstrap: str, topic: str) -> Iterator[None]:
    """Events at a steady rate, so that batches are never empty."""
    ended = threading.Event()

    def produce() -> None:
        sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        for made in clickstream.records(Random(7), rate=BACKGROUND_RATE):
            sender.produce(topic, made.value, made.key)
            sender.poll(0)
            if ended.wait(1 / BACKGROUND_RATE):
                break
        sender.flush(30)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _probe(bootstrap: str, topic: str, *, count: int) -> list[float]:
    """Seconds from the send of an event of a page of its own until a read_committed reader has that page's count."""
    sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    settings = {"group.id": "bench", "isolation.level": "read_committed", "auto.offset.reset": "latest"}
    reader = Consumer({"bootstrap.servers": bootstrap, **settings})
    places = [TopicPartition(f"{topic}.counts", each) for each in _partitions(reader, f"{topic}.counts")]
    reader.assign([TopicPartition(p.topic, p.partition, reader.get_watermark_offsets(p)[1]) for p in places])
    started = time.monotonic()
    _await(reader)  # the queries have begun: what is sent from now on is theirs
    found: list[float] = []
    for number in range(count):
        page = f"/probe/{number}"
        moment = (clickstream.START + datetime.timedelta(seconds=time.monotonic() - started)).isoformat()
        text = f'{{"event_id": "probe-{number}", "user": "probe", "page": "{page}", "event_time": "{moment}"}}'
        began = time.monotonic()
        sender.produce(topic, text.encode())
        sender.poll(0)
        _await(reader, page.encode())
        found.append(time.monotonic() - began)
        time.sleep(PROBE_EVERY_S - found[-1] % PROBE_EVERY_S)
    reader.close()
    return found


def _await(reader: Consumer, key: bytes | None = None) -> None:
    """Until a record of this key comes, or any if none is said."""
    deadline = time.monotonic() + PROBE_SECONDS_MAX
    while time.monotonic() < deadline:
        message = reader.poll(1.0)
        if message is not None and not message.error() and key in (None, message.key()):
            return
    raise RuntimeError(f"a count did not come through in {PROBE_SECONDS_MAX:.0f} s")


def _partitions(reader: Consumer, topic: str) -> list[int]:
    return sorted(reader.list_topics(topic, timeout=30).topics[topic].partitions)


if __name__ == "__main__":
    serve(prepare)
