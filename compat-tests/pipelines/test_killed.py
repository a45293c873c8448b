"""Exactly once, with kill -9: of a Python worker, of the broker, of the JVM, of the driver, of all at once.

One pipeline is killed again and again, at moments that matter, and started again. It writes a topic (two writers), a
Parquet table (with state, as it leaves out what came twice), and, by one shared read that is joined with a growing
table, another topic and a Delta table by upserts. Each output must then hold exactly what the input says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from harness.broker_process import BrokerProcess
from harness.confluent_client import consumer, create_topic, producer, send_patiently
from harness.waiting import eventually
from pipelines.pipeline_process import QUICK_SPARK, PipelineProcess, running
from pipelines.transactions_seen import TopicEnds

RECORDS = 8000
PARTITIONS = 2
COPY, NAMED = "copy", "named"
# A batch of 400 at 1,000 a second and writer holds its transactions open for some 0.2 s: long enough to be hit.
YAML = """\
name: disturbed
bootstrap: {bootstrap}
sources:
  events:
    topic: events
    format: json
    schema: {{n: LONG, at: TIMESTAMP}}
    batch_records_max: 400
  names: {{type: table, topic: names, format: json, schema: {{name: STRING}}}}
steps:
  - name: unique
    from: events
    watermark: {{column: at, delay: 1 minute}}
    dedupe: {{keys: [n]}}
  - name: joined
    sql: |
      SELECT n, name, _topic, _partition, _offset FROM events
      JOIN (SELECT CAST(CAST(_key AS STRING) AS LONG) AS k, name FROM names) ON n % 10 = k
sinks:
  copy: {{from: events, topic: copy, key: n, writers: 2, rate: 2000, trigger: 50ms}}
  lake: {{type: parquet, from: unique, path: lake, trigger: 1 second}}
  named: {{from: joined, topic: named, key: n, writers: 2, trigger: 1 second}}
  newest: {{type: delta, from: joined, path: newest, mode: upsert, keys: [n], trigger: 1 second}}
spark:
{quick}"""
AT_ONCE = ("--once", "--set", "sources.events.batch_records_max=100000", "--set", "sinks.copy.rate=1000000")


@pytest.fixture
def broker(new_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    few = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "4"}
    made = new_broker(few)
    for topic in ("events", COPY, NAMED):
        create_topic(made.bootstrap, topic, partitions=PARTITIONS, retention_ms="-1")
    create_topic(made.bootstrap, "names", cleanup_policy="compact")
    return made


def moment(number: int) -> str:
    """Event time goes on slowly: nothing is late, however the records fall into batches."""
    return f"2030-01-31T12:{number // 1000:02d}:00"


def fill(bootstrap: str) -> None:
    """Every tenth event twice."""
    sender = producer(bootstrap, partitioner="murmur2_random")
    for number in range(10):
        send_patiently(sender, "names", b'{"name": "name %d"}' % number, key=str(number).encode())
    for number in range(RECORDS):
        event = {"n": number, "at": f"{moment(number)}Z"}
        for _ in range(2 if number % 10 == 0 else 1):
            send_patiently(sender, "events", json.dumps(event).encode(), key=str(number).encode())
    assert sender.flush(60) == 0


def rows_of(bootstrap: str, topic: str) -> list[tuple[int, str]]:
    """What a read_committed reader sees, by number. A key's records are all in one partition."""
    found: list[tuple[int, str]] = []
    partition_of: dict[bytes | None, int] = {}
    with consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        for partition in range(PARTITIONS):
            reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            while (message := reader.poll(30)) is not None and not message.error():
                row = json.loads(message.value() or b"")
                assert message.key() == str(row["n"]).encode()
                assert partition_of.setdefault(message.key(), partition) == partition
                found.append((row["n"], row.get("name") or row["at"].removesuffix(".000Z")))
    return sorted(found)


def lake(directory: Path) -> Counter[tuple[int, str]]:
    """Of the files that the table's log names: a killed batch may leave others beside them."""
    table = directory / "lake"
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
        rows.update((n, f"{at:%Y-%m-%dT%H:%M:%S}") for n, at in zip(columns["n"], columns["at"], strict=True))
    return rows


def merged(directory: Path) -> list[tuple[int, str]]:
    """The rows of a Delta table: of all files that were added and not removed, as its log tells."""
    table = directory / "newest"
    files: set[str] = set()
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.discard(action["remove"]["path"])
            if "add" in action:
                files.add(action["add"]["path"])
    found: list[tuple[int, str]] = []
    for path in files:
        columns = pyarrow.parquet.read_table(table / unquote(path), columns=["n", "name"]).to_pydict()
        found += zip(columns["n"], columns["name"], strict=True)
    return sorted(found)


@pytest.mark.timeout(1800)
def test_killed_at_any_moment_each_output_is_what_the_input_says(broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker.bootstrap)
    log, file = tmp_path / "pipeline.log", tmp_path / "disturbed.yaml"
    file.write_text(YAML.format(bootstrap=broker.bootstrap, quick=QUICK_SPARK))
    with (
        consumer(broker.bootstrap, isolation_level="read_committed") as committed,
        consumer(broker.bootstrap, isolation_level="read_uncommitted") as everything,
    ):
        ends = TopicEnds(committed, everything, partitions=PARTITIONS)

        with running(file, log=log) as run:
            run.await_batches("copy", 2)
            ends.await_open_transaction(COPY)
            kill_a_worker(run)
            run.await_batches("copy", 4)
            ends.await_open_transaction(COPY)
            broker.restart(clean=False)
            run.await_batches("copy", 6)
            ends.await_open_transaction(COPY)
            assert run.kill_jvm() == 1
            assert run.said.splitlines()[-1].startswith("tidemark: "), run.said

        with running(file, log=log) as run:
            run.await_batches("copy", 2)
            ends.await_open_transaction(COPY)
            run.kill_everything()

        with running(file, log=log) as run:
            run.await_batches("named+newest", 1)
            ends.await_commit(NAMED)  # the topic has its part of a batch, and the table, which comes after it, does not
            run.kill_driver()

    with running(file, *AT_ONCE, log=log) as run:
        assert run.await_end() == 0, run.said
    events = [number for number in range(RECORDS) for _ in range(2 if number % 10 == 0 else 1)]
    assert rows_of(broker.bootstrap, COPY) == [(number, moment(number)) for number in events]
    assert rows_of(broker.bootstrap, NAMED) == [(number, f"name {number % 10}") for number in events]
    assert lake(tmp_path) == Counter((number, moment(number)) for number in range(RECORDS))
    assert merged(tmp_path) == [(number, f"name {number % 10}") for number in range(RECORDS)]


def kill_a_worker(run: PipelineProcess) -> None:
    busy = eventually(lambda: run.workers, seconds_max=60)
    busy[0].kill()
