"""Directories that Apache Kafka wrote open here: killed and stopped cleanly, all codecs, idempotent producers."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.ports import free_port

from tidemark.protocol.records import iter_records
from tidemark.storage import REAL_FILES, LogConfig, LogDirectory
from tidemark.storage.tools import find_partitions, verify

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SEGMENT_BYTES = 1 << 20  # the smallest that Kafka takes
HALF = 3000  # records per topic before the kill, and as many after
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)


class KafkaProcess:
    """Apache Kafka as one combined node, from the jars."""

    def __init__(self, jars: str, home: Path) -> None:
        self.data = home / "data"
        self._jars, self._home = jars, home
        self._broker, self._controller = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self._broker}"
        self._properties = home / "server.properties"
        self._properties.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self._broker},CONTROLLER://127.0.0.1:{self._controller}\n"
            "controller.listener.names=CONTROLLER\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{self._controller}\n"
            f"log.dirs={self.data}\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            "broker.session.timeout.ms=2000\nbroker.heartbeat.interval.ms=500\n"
            "offsets.topic.num.partitions=1\ntransaction.state.log.num.partitions=1\n"
            "log.cleaner.backoff.ms=100\n"
        )
        options = ("-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._properties), "--standalone")
        assert self._java("kafka.tools.StorageTool", "format", *options).wait(60) == 0
        self._process: subprocess.Popen[bytes] | None = None

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", self._jars, *arguments]
        return subprocess.Popen(command, cwd=self._home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        self._process = self._java("kafka.Kafka", str(self._properties))
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            assert self._process.poll() is None, "Apache Kafka has stopped"
            try:
                AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=2)
            except Exception:
                continue
            return
        pytest.fail("Apache Kafka did not answer within 90 s")

    def stop(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None


@dataclass(frozen=True)
class Written:
    killed: Path  # a copy of the data directory after kill -9
    stopped: Path  # a copy after a restart, more records, and a clean stop
    values: dict[str, list[bytes]]  # by topic, in order; the first half was written before the kill
    kafka: KafkaProcess
    last: dict[bytes, bytes | None]  # of every key of the topic that Kafka compacted


def produce(bootstrap: str, codec: str, values: list[bytes]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.num.messages": 20,
            "linger.ms": 5,
        }
    )
    for value in values:
        producer.produce(f"codec-{codec}", value=value, key=b"k", partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
}
KEYS = 40


def produce_keys(kafka: KafkaProcess) -> dict[bytes, bytes | None]:
    """Three megabytes of records with few keys, some of them deleted again. Returns when Kafka has compacted them."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 10})
    last: dict[bytes, bytes | None] = {}
    for number in range(3000):
        key = b"key%d" % (number % KEYS)
        last[key] = None if number > 2900 and number % 7 == 0 else b"%d " % number * 200
        producer.produce("compacted", value=last[key], key=key, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    deadline = time.monotonic() + 60
    checkpoint = kafka.data / "cleaner-offset-checkpoint"
    while not checkpoint.exists() or not re.search(r"^compacted 0 [1-9]", checkpoint.read_text(), re.MULTILINE):
        assert time.monotonic() < deadline, "Apache Kafka did not compact"
        time.sleep(0.1)
    return last


@pytest.fixture(scope="session")
def written(jars, tmp_path_factory):
    home = tmp_path_factory.mktemp("kafka")
    kafka = KafkaProcess(jars, home)
    values = {f"codec-{codec}": [b"%s %06d " % (codec.encode(), n) * 40 for n in range(2 * HALF)] for codec in CODECS}
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        config = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
        topics = [NewTopic(topic, num_partitions=1, replication_factor=1, config=config) for topic in values]
        topics.append(NewTopic("compacted", num_partitions=1, replication_factor=1, config=COMPACTED))
        for future in admin.create_topics(topics).values():
            future.result(30)
        for codec in CODECS:
            produce(kafka.bootstrap, codec, values[f"codec-{codec}"][:HALF])
        kafka.stop(signal.SIGKILL)
        shutil.copytree(kafka.data, home / "killed")
        kafka.start()
        for codec in CODECS:
            produce(kafka.bootstrap, codec, values[f"codec-{codec}"][HALF:])
        last = produce_keys(kafka)
        kafka.stop(signal.SIGTERM)
    finally:
        kafka.stop(signal.SIGKILL)
    return Written(home / "killed", kafka.data, values, kafka, last)


def open_copy(source: Path, target: Path) -> LogDirectory:
    shutil.copytree(source, target)
    directory = LogDirectory.open(str(target))
    failures = directory.open_all(lambda topic, partition: CONFIG)
    assert failures == {}
    return directory


@pytest.mark.parametrize(("kind", "count"), [("killed", HALF), ("stopped", 2 * HALF)])
def test_a_directory_that_kafka_wrote_opens_with_all_its_records(written, read_batches, tmp_path, kind, count):
    directory = open_copy(getattr(written, kind), tmp_path / "data")
    assert directory.was_clean is (kind == "stopped")
    assert directory.meta_properties()["node.id"] == "1"
    for topic, values in written.values.items():
        log = directory.logs[topic, 0]
        assert (log.start_offset, log.end_offset) == (0, count)
        found = [record.value for _, batch in read_batches(log) for record in iter_records(batch)]
        assert found == values[:count]
        assert log.topic_id is not None
    assert directory.logs["codec-none", 0].segment_count > 1
    directory.close()


@pytest.mark.parametrize("kind", ["killed", "stopped"])
def test_producers_and_epochs_are_those_that_kafka_knew(written, tmp_path, kind):
    directory = open_copy(getattr(written, kind), tmp_path / "data")
    for topic in written.values:
        log = directory.logs[topic, 0]
        lines = (getattr(written, kind) / f"{topic}-0" / "leader-epoch-checkpoint").read_text().split("\n")[2:-1]
        assert log.latest_epoch == int(lines[-1].split()[0])
        states = log.producers()
        assert len(states) == (1 if kind == "killed" else 2)
        assert states[-1].last_sequence == HALF - 1
        assert max(state.batches[-1].last_offset for state in states) == log.end_offset - 1
    directory.close()


@pytest.mark.parametrize("kind", ["killed", "stopped"])
def test_our_checks_find_nothing_wrong_with_what_kafka_wrote(written, kind):
    places = find_partitions(REAL_FILES, str(getattr(written, kind)))
    assert {place.topic for place in places} >= set(written.values)
    assert [str(step) for place in places for step in verify(place) if not isinstance(step, int)] == []


def test_kafkas_tool_and_we_read_the_same_from_its_snapshots(written, dump, tmp_path):
    folders = []
    for topic in written.values:
        newest = max((written.stopped / f"{topic}-0").glob("*.snapshot"))
        folders.append(tmp_path / topic)
        folders[-1].mkdir()
        shutil.copy(newest, folders[-1])
    output, _ = dump(*folders)
    directory = open_copy(written.stopped, tmp_path / "data")
    ours = {
        (state.producer_id, state.epoch, state.last_sequence, state.batches[-1].last_offset, state.last_timestamp)
        for topic in written.values
        for state in directory.logs[topic, 0].producers()
    }
    fields = r"producerId: (\d+) producerEpoch: (\d+) .* lastSequence: (\d+) lastOffset: (\d+) .* timestamp: (\d+)"
    assert ours == {tuple(map(int, found)) for found in re.findall(fields, output)}
    assert len(ours) == 2 * len(CODECS)
    directory.close()


def test_what_we_add_to_kafkas_directories_kafkas_tool_reads(written, make_batch, append, dump, tmp_path):
    directory = open_copy(written.stopped, tmp_path / "data")
    for topic in written.values:
        log = directory.logs[topic, 0]
        assert append(log, make_batch(5), leader_epoch=log.latest_epoch + 1).base_offset == 2 * HALF
    directory.close()
    folders = [tmp_path / "data" / f"{topic}-0" for topic in written.values]
    output, complaints = dump(*folders, options=("--deep-iteration",))
    assert complaints == []
    assert output.count(f"| offset: {2 * HALF + 4} ") == len(folders)


def test_kafka_goes_on_with_a_directory_that_we_wrote_to(written, make_batch, append, tmp_path):
    """We take Kafka's directory over, write to it, stop; Kafka takes it back and serves our records."""
    kafka = written.kafka
    shutil.copytree(kafka.data, tmp_path / "before")
    directory = LogDirectory.open(str(kafka.data))
    assert directory.open_all(lambda topic, partition: CONFIG) == {}
    ours: dict[Any, Any] = {}
    for topic in written.values:
        log = directory.logs[topic, 0]
        for number in range(60):
            batch = make_batch(5, size=5000, timestamp=1_800_000_000_000 + number)
            append(log, batch, leader_epoch=log.latest_epoch)
            ours.setdefault(topic, []).extend(record.value for record in iter_records(batch))
        assert log.segment_count > 2
    directory.close()
    try:
        kafka.start()
        for topic, values in written.values.items():
            assert consume(kafka.bootstrap, topic, count=len(values) + len(ours[topic])) == values + ours[topic]
    finally:
        kafka.stop(signal.SIGKILL)
        shutil.rmtree(kafka.data)
        shutil.copytree(tmp_path / "before", kafka.data)


def test_kafka_serves_a_directory_that_we_compacted(written, read_batches, compact_log, tmp_path):
    kafka = written.kafka
    shutil.copytree(kafka.data, tmp_path / "before")
    directory = LogDirectory.open(str(kafka.data))
    assert directory.open_all(lambda topic, partition: CONFIG) == {}
    left = {}
    for topic, values in written.values.items():
        log = directory.logs[topic, 0]
        compact_log(log, now_ms=1_800_000_000_000)
        left[topic] = [record.value for _, batch in read_batches(log) for record in iter_records(batch)]
        assert left[topic][-1] == values[-1]
        assert len(left[topic]) < len(values) or log.segment_count == 1
    assert len(left["codec-none"]) < HALF
    directory.close()
    try:
        kafka.start()
        for topic, values in left.items():
            assert consume(kafka.bootstrap, topic, count=len(values)) == values
    finally:
        kafka.stop(signal.SIGKILL)
        shutil.rmtree(kafka.data)
        shutil.copytree(tmp_path / "before", kafka.data)


def consume(bootstrap: str, topic: str, *, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1):
            assert message.error() is None, message.error()
            values.append(message.value())  # type: ignore[arg-type]
    consumer.close()
    return values


def test_what_kafka_compacted_opens_and_is_compacted_further(
    written, read_batches, compact_log, make_batch, append, tmp_path
):
    directory = open_copy(written.stopped, tmp_path / "data")
    log = directory.logs["compacted", 0]
    assert log.end_offset == 3000
    assert directory.cleaned_up_to["compacted", 0] > 0

    def last_values() -> tuple[int, dict[bytes | None, bytes | None]]:
        records = [record for _, batch in read_batches(log) for record in iter_records(batch)]
        return len(records), {record.key: record.value for record in records}

    count, last = last_values()
    assert count < 3000
    assert last == written.last
    log.config = LogConfig(segment_bytes=SEGMENT_BYTES, compact=True)
    log.roll()
    append(log, make_batch())  # with a key of its own: the segment with the log's last batch is never cleaned
    compact_log(log, now_ms=time.time_ns() // 1_000_000, cleaned_up_to=directory.cleaned_up_to["compacted", 0])
    fewer, last = last_values()
    assert fewer < count
    assert {key: last.get(key) for key in written.last} == written.last
    assert len(last) == len(written.last) + 1
    directory.close()
