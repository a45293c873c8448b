"""A partition moves between the log directories of a broker with Kafka's own tool, killed on the way, under load."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, read_everything
from harness.java_programs import run_tools
from harness.waiting import eventually

TOOLS = "org.apache.kafka.tools"
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def plan(path: Path, topic: str, target: Path) -> Path:
    moved = {"topic": topic, "partition": 0, "replicas": [0], "log_dirs": [str(target)]}
    path.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    return path


class Load:
    """Producing all the while."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self._is_over = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 2}
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run, args=(topic,))
        self._thread.start()

    def _run(self, topic: str) -> None:
        while not self._is_over.wait(0.002):
            self._producer.produce(topic, b"%d " % self.sent + bytes(2000), partition=0)
            self._producer.poll(0)
            self.sent += 1

    def stop(self) -> int:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        return self.sent


def test_a_partition_moves_under_load_and_after_a_kill_nothing_is_missing(
    new_broker: Callable[..., BrokerProcess], topic: str, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    broker = new_broker({RATE: "100000", "log.segment.bytes": "1048576"})
    broker.stop()
    broker.settings["log.dirs"] = f"{broker.data},{second}"
    broker.start()
    create_topic(broker.bootstrap, topic)
    load = Load(broker.bootstrap, topic)
    eventually(lambda: load.sent > 1500, seconds_max=60)
    began = broker.data if (broker.data / f"{topic}-0").is_dir() else second
    target = second if began is broker.data else broker.data
    command = ["--bootstrap-server", broker.bootstrap]
    reassign = [f"{TOOLS}.reassign.ReassignPartitionsCommand", *command, "--reassignment-json-file"]
    started, shown = run_tools(
        [*reassign, str(plan(tmp_path / "plan.json", topic, target)), "--execute"],
        [f"{TOOLS}.LogDirsCommand", *command, "--describe", "--topic-list", topic],
    )
    assert "Successfully started" in started.checked().stdout
    assert '"isFuture":true' in shown.checked().stdout
    broker.kill()
    broker.settings[RATE] = "100000000"
    broker.start()
    assert "its move" in broker.log
    eventually(lambda: (target / f"{topic}-0").is_dir(), seconds_max=60)
    eventually(lambda: not (began / f"{topic}-0").is_dir(), seconds_max=20)
    back = ["cluster", "move-log", "-b", broker.bootstrap, "--topic", topic, "--partition", "0", "--broker", "0"]
    moved = subprocess.run(
        [sys.executable, "-m", "tidemark.cli.main", *back, "--to", str(began), "--wait", "120"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert moved.stdout == f"{topic}-0 is in {began}.\n", moved.stderr
    sent = load.stop()
    found = [int(record.value().split()[0]) for record in read_everything(broker.bootstrap, topic)]
    assert found == list(range(sent))
