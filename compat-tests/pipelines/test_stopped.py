"""Stopped by a signal to the whole process group, as a terminal or systemd sends it: the batch at work is finished, and
the next run has nothing to mend."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from harness.broker_process import BrokerProcess
from harness.confluent_client import consumer, create_topic, producer
from pipelines.pipeline_process import QUICK_SPARK, PipelineProcess, running

RECORDS = 3000
BATCH = 200
# A batch of 200 at 400 a second: each is at work for half a second, one after the other.
YAML = """\
name: stopped
bootstrap: {bootstrap}
checkpoint: {directory}/checkpoint
sources:
  lines: {{topic: lines, format: string, batch_records_max: {batch}}}
sinks:
  copy: {{from: lines, topic: lines-copy, value: value, rate: 400, trigger: 50ms, partitions: 1}}
spark:
{quick}"""


@pytest.fixture
def broker(new_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return new_broker({"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"})


def copied(bootstrap: str) -> list[bytes | None]:
    with consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        reader.assign([TopicPartition("lines-copy", 0, OFFSET_BEGINNING)])
        found = []
        while (message := reader.poll(30)) is not None and not message.error():
            found.append(message.value())
    return found


def stop(run: PipelineProcess, number: int) -> None:
    run.await_batches("copy", 2)
    os.killpg(run.pid, number)
    assert run.await_end(120) == 0, run.said
    assert "Stopping: copy finish their batches" in run.said
    assert "Traceback" not in run.said
    assert "stopped: " in run.said  # the summary


@pytest.mark.timeout(900)
def test_signals_to_the_process_group_drain_and_the_next_run_starts_clean(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, "lines", partitions=1)
    sender = producer(broker.bootstrap)
    for number in range(RECORDS):
        sender.produce("lines", b"%d" % number)
    assert sender.flush(30) == 0
    file, log = tmp_path / "stopped.yaml", tmp_path / "log"
    file.write_text(YAML.format(bootstrap=broker.bootstrap, directory=tmp_path, batch=BATCH, quick=QUICK_SPARK))
    for number in (signal.SIGTERM, signal.SIGINT):
        with running(file, log=log, own_group=True) as run:
            stop(run, number)
            assert "failed in its report" not in run.said
    # Two runs, the second begun where the first was stopped: every record once, in order, as far as they came.
    found = copied(broker.bootstrap)
    assert len(found) >= 4 * BATCH
    assert found == [b"%d" % number for number in range(len(found))]
