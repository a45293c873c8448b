"""One Spark session and one broker for all of the pipeline's tests: a JVM takes its time to start."""

from __future__ import annotations

import gc
import io
import os
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from harness.java import SHORT_LIVED_ENVIRONMENT

import tidemark
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spec import Pipeline, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Produce = Callable[[Iterable[GeneratedRecord]], None]
YAML = """\
name: {name}
sources:
  things: {{topic: {name}, format: json}}
sinks:
  out: {{from: things, topic: {name}-out}}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets of its calls to the garbage collector; our own tests stay strict about theirs."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.timeout(900))  # a busy machine takes minutes to start a JVM
            item.add_marker(pytest.mark.usefixtures("pyspark_leftovers"))


@pytest.fixture
def pyspark_leftovers() -> Iterator[None]:
    """Collected here, where their warnings are expected, and not in whatever test comes later."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    from tidemark.pipeline.spark import SHORT_LIVED, session

    warehouse = tmp_path_factory.mktemp("warehouse")
    with warnings.catch_warnings(), mock.patch.dict(os.environ, SHORT_LIVED_ENVIRONMENT):
        warnings.simplefilter("ignore")  # PySpark's own, while it starts
        return session("tests", master="local[2]", warehouse=str(warehouse), settings=SHORT_LIVED)


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    few = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}
    with tidemark.embedded(**few) as broker:  # type: ignore[arg-type]
        yield broker.bootstrap


@pytest.fixture(scope="session")
def cluster(bootstrap: str) -> ClusterAdmin:
    return ClusterAdmin(bootstrap, {"linger.ms": "0"})


def producing_to(cluster: ClusterAdmin) -> Produce:
    from confluent_kafka import Producer

    def send(records: Iterable[GeneratedRecord]) -> None:
        producer = Producer({**cluster.settings, "partitioner": "murmur2_random"})
        for each in records:
            producer.produce(each.topic, each.value, each.key, headers=list(each.headers))
            producer.poll(0)
        assert producer.flush(60) == 0

    return send


@pytest.fixture
def produce(cluster: ClusterAdmin) -> Produce:
    return producing_to(cluster)


def committed_of(cluster: ClusterAdmin, topic: str) -> list[GeneratedRecord]:
    """All records of a topic that a read_committed reader sees, partition by partition."""
    from confluent_kafka import TopicPartition

    found: list[GeneratedRecord] = []
    with cluster.consumer(**{"isolation.level": "read_committed", "enable.partition.eof": True}) as reader:
        for partition in cluster.topics()[topic]:
            reader.assign([TopicPartition(topic, partition, 0)])
            while (message := reader.poll(30)) is not None and not message.error():
                headers = tuple((name, bytes(value)) for name, value in message.headers() or ())  # type: ignore[arg-type, str-unpack]
                found.append(GeneratedRecord(topic=topic, key=message.key(), value=message.value(), headers=headers))
    return found


@pytest.fixture
def committed(cluster: ClusterAdmin) -> Callable[[str], list[GeneratedRecord]]:
    return lambda topic: committed_of(cluster, topic)


class Trial:
    """One small pipeline with a topic and a checkpoint of its own."""

    def __init__(self, spark: SparkSession, cluster: ClusterAdmin, produce: Produce, directory: Path) -> None:
        self.name = f"trial-{uuid.uuid4().hex[:8]}"
        self.said = io.StringIO()
        self.checkpoint = directory / "checkpoint"
        self.file = directory / "trial.yaml"
        self.file.write_text(YAML.format(name=self.name))
        self.overrides = [f"bootstrap={cluster.bootstrap}", f"checkpoint={self.checkpoint}"]
        self._spark, self._cluster, self._produce = spark, cluster, produce
        cluster.create_topic(self.name, partitions=1)

    def produce(self, *values: bytes | None, key: bytes | None = None) -> None:
        self._produce(GeneratedRecord(topic=self.name, key=key, value=value) for value in values)

    def produce_to(self, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
        self._produce(GeneratedRecord(topic=topic, key=key, value=value) for value in values)

    def create_topic(self, topic: str, *, partitions: int = 1) -> None:
        self._cluster.create_topic(topic, partitions=partitions)

    def run(self, *overrides: str) -> Runner:
        runner = Runner(self._spark, self.pipeline(*overrides), once=True, out=self.said)
        runner.run()
        return runner

    def pipeline(self, *overrides: str) -> Pipeline:
        return load(self.file, overrides=[*self.overrides, *overrides])

    def delete_before(self, offset: int, *, topic: str | None = None) -> None:
        from confluent_kafka import TopicPartition

        place = TopicPartition(topic or self.name, 0, offset)
        self._cluster.admin.delete_records([place])[place].result()


@pytest.fixture
def trial(spark: SparkSession, cluster: ClusterAdmin, produce: Produce, tmp_path: Path) -> Trial:
    return Trial(spark, cluster, produce, tmp_path)


@pytest.fixture(scope="session")
def shipped() -> Path:
    return Path(__file__).parents[2] / "config" / "pipelines"
