"""Exactly once, with kill -9: of a Python worker, of the broker, of the JVM, of the driver, of all at once.

One pipeline from a topic to a topic (two writers) and to Parquet (with state, as it leaves out what came twice) is
killed again and again, at moments that matter, and started again. What it leaves must equal what an undisturbed run
leaves.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from harness.broker_process import BrokerProcess
from harness.confluent_client import consumer, create_topic, producer, send_patiently
from harness.waiting import eventually
from pipelines.pipeline_process import PipelineProcess, running

RECORDS = 10_000
PARTITIONS = 2
# A batch of 400 at 1,000 a second and writer holds its transactions open for some 0.2 s: long enough to be hit.
YAML = """\
name: {name}
bootstrap: {bootstrap}
checkpoint: {directory}/{name}-checkpoint
sources:
  events:
    topic: events
    format: json
    schema: {{n: LONG, at: TIMESTAMP}}
    batch_records_max: 400
steps:
  - name: unique
    from: events
    watermark: {{column: at, delay: 1 minute}}
    dedupe: {{keys: [n]}}
sinks:
  copy: {{from: events, topic: {name}-copy, key: n, writers: 2, rate: {rate}, trigger: 50ms, partitions: 2}}
  lake: {{type: parquet, from: unique, path: "{directory}/{name}-lake", trigger: 1 second}}
spark:
  spark.ui.enabled: "false"
  spark.sql.shuffle.partitions: "1"
"""
WHOLE = "sources.events.batch_records_max=100000"
Rows = Counter[tuple[int, bytes | None, bytes | None]]


@pytest.fixture
def broker(new_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    few = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "4"}
    made = new_broker(few)
    create_topic(made.bootstrap, "events", partitions=PARTITIONS, retention_ms="-1")
    return made


def fill(bootstrap: str) -> None:
    """Every tenth event twice. Event time goes on slowly: nothing is late, however the records fall into batches."""
    sender = producer(bootstrap, partitioner="murmur2_random")
    for number in range(RECORDS):
        event = {"n": number, "at": f"2030-01-31T12:{number // 1000:02d}:00Z"}
        for _ in range(2 if number % 10 == 0 else 1):
            send_patiently(sender, "events", json.dumps(event).encode(), key=str(number).encode())
    assert sender.flush(60) == 0


def declare(directory: Path, name: str, *, bootstrap: str, rate: int) -> Path:
    file = directory / f"{name}.yaml"
    file.write_text(YAML.format(name=name, bootstrap=bootstrap, directory=directory, rate=rate))
    return file


def copied(bootstrap: str, name: str) -> Rows:
    """Partition, key and value of each record that a read_committed reader sees. How the rows of two writers lie among
    each other is chance, undisturbed too."""
    rows: Rows = Counter()
    with consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        for partition in range(PARTITIONS):
            reader.assign([TopicPartition(f"{name}-copy", partition, OFFSET_BEGINNING)])
            while (message := reader.poll(30)) is not None and not message.error():
                rows[partition, message.key(), message.value()] += 1
    return rows


def lake(directory: Path, name: str) -> Counter[tuple[int, str]]:
    """Of the files that the table's log names: a killed batch may leave others beside them."""
    table = directory / f"{name}-lake"
    log = table / "_spark_metadata"
    newest: dict[int, list[str]] = {}
    compacted = -1
    for file in log.iterdir():
        if file.name.startswith("."):
            continue
        number = int(file.name.removesuffix(".compact"))
        lines = file.read_text().splitlines()[1:]
        newest[number] = [json.loads(line)["path"].rpartition("/")[2] for line in lines]
        if file.name.endswith(".compact"):
            compacted = max(compacted, number)
    files = [path for number, paths in newest.items() if number >= compacted for path in paths]
    assert len(files) == len(set(files))
    rows: Counter[tuple[int, str]] = Counter()
    for path in files:
        columns = pyarrow.parquet.read_table(table / path, columns=["n", "at"]).to_pydict()
        rows.update((n, str(at)) for n, at in zip(columns["n"], columns["at"], strict=True))
    return rows


class OpenTransaction:
    """Sees from outside when a transaction is under way in the copy: its records are there, but not yet stable."""

    def __init__(self, name: str, committed: Consumer, everything: Consumer) -> None:
        self._topic = f"{name}-copy"
        self._committed, self._everything = committed, everything

    def _ends(self, reader: Consumer) -> list[int]:
        places = [TopicPartition(self._topic, partition) for partition in range(PARTITIONS)]
        return [reader.get_watermark_offsets(each, timeout=30)[1] for each in places]

    def wait(self) -> None:
        eventually(lambda: self._ends(self._committed) != self._ends(self._everything), seconds_max=300)


@pytest.mark.timeout(1800)
def test_killed_at_any_moment_the_outputs_are_those_of_an_undisturbed_run(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap)
    log = tmp_path / "pipeline.log"
    calm = declare(tmp_path, "calm", bootstrap=broker.bootstrap, rate=1_000_000)
    with running(calm, "--once", "--set", WHOLE, log=log) as run:
        assert run.await_end() == 0, run.said
    disturbed = declare(tmp_path, "disturbed", bootstrap=broker.bootstrap, rate=2000)
    create_topic(broker.bootstrap, "disturbed-copy", partitions=PARTITIONS)
    with (
        consumer(broker.bootstrap, isolation_level="read_committed") as committed,
        consumer(broker.bootstrap, isolation_level="read_uncommitted") as everything,
    ):
        open_transaction = OpenTransaction("disturbed", committed, everything)

        with running(disturbed, log=log) as run:
            run.await_batches("copy", 2)
            open_transaction.wait()
            kill_a_worker(run)
            run.await_batches("copy", 4)
            open_transaction.wait()
            broker.restart(clean=False)
            run.await_batches("copy", 6)
            open_transaction.wait()
            assert run.kill_jvm() == 1
            assert run.said.splitlines()[-1].startswith("tidemark: "), run.said

        with running(disturbed, log=log) as run:
            run.await_batches("copy", 2)
            open_transaction.wait()
            run.kill_driver()

        with running(disturbed, log=log) as run:
            run.await_batches("lake", 2)
            run.kill_everything()

    with running(
        disturbed,
        "--once",
        "--set",
        "sinks.copy.rate=1000000",
        "--set",
        WHOLE,
        log=log,
    ) as run:
        assert run.await_end() == 0, run.said
    assert copied(broker.bootstrap, "calm").total() == RECORDS + RECORDS // 10
    assert copied(broker.bootstrap, "disturbed") == copied(broker.bootstrap, "calm")
    assert lake(tmp_path, "disturbed") == lake(tmp_path, "calm")
    assert len(lake(tmp_path, "calm")) == RECORDS


def kill_a_worker(run: PipelineProcess) -> None:
    busy = eventually(lambda: run.workers, seconds_max=60)
    busy[0].kill()
