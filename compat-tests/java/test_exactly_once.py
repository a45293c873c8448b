"""Exactly once with kafka-clients under kill -9: the broker every few seconds, and the instances in between.

The sibling of durability/test_transactions.py, with processes instead of threads: an instance that is killed leaves an
open transaction and a member of the group behind, and its successor with the same transactional id puts that right.
COMPAT_EXACTLY_ONCE_RECORDS makes it longer; kills go on as long as records are missing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Message
from harness.broker_process import BrokerProcess
from harness.committed import committed_items
from harness.confluent_client import create_topic, producer, send_patiently
from harness.java_processes import JavaProcess

RECORDS = int(os.environ.get("COMPAT_EXACTLY_ONCE_RECORDS", "40000"))
INSTANCES = 3
PARTITIONS = 6
LEAST_KILLS = max(3, RECORDS // 20_000)
SECONDS_BETWEEN_KILLS = 5.0
KILLS_PER_INSTANCE_KILL = 3
# A killed instance is missed after its session, which begins anew with the broker: it must fit between two kills.
SESSION_MS = "2000"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
SECONDS_MAX = 120 + RECORDS / 500


class Killing:
    """kill -9 in a rhythm: the broker, and every so often an instance too."""

    def __init__(self, broker: BrokerProcess, instances: list[JavaProcess], new: Callable[[int], JavaProcess]) -> None:
        self._broker, self._instances, self._new = broker, instances, new
        self.kills = 0
        self._next = time.monotonic() + SECONDS_BETWEEN_KILLS

    def when_due(self) -> None:
        if time.monotonic() < self._next:
            return
        self._broker.restart(clean=False)
        self.kills += 1
        if self.kills % KILLS_PER_INSTANCE_KILL == 0:
            victim = self.kills // KILLS_PER_INSTANCE_KILL % len(self._instances)
            self._instances[victim].kill()
            self._instances[victim] = self._new(victim)
        self._next = time.monotonic() + SECONDS_BETWEEN_KILLS


class Feed:
    """Plain idempotent input: as much as keeps the instances busy, and the rest as they get on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._sender = producer(bootstrap, enable_idempotence=True, linger_ms=5, reconnect_backoff_max_ms=200)
        self.sent = 0

    def send_up_to(self, number: int) -> None:
        for each in range(self.sent, min(number, RECORDS)):
            send_patiently(self._sender, self._topic, b"%d" % each, partition=each % PARTITIONS)
        self.sent = max(self.sent, min(number, RECORDS))
        self._sender.poll(0)

    def finish(self) -> None:
        assert self._sender.flush(60) == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_input_is_in_the_output_once(
    new_broker: Callable[..., BrokerProcess], topic: str, tmp_path: Path, protocol: str
) -> None:
    broker = new_broker(SETTINGS)
    target = f"{topic}-out"
    create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    create_topic(broker.bootstrap, target, partitions=PARTITIONS)
    names = [f"{topic}-{number}" for number in range(INSTANCES)]

    def instance(number: int) -> JavaProcess:
        return JavaProcess(
            "ConsumeTransformProduce", broker.bootstrap, topic, target, names[number], protocol,
            directory=tmp_path / f"instance-{number}",
        )  # fmt: skip

    instances = [instance(number) for number in range(INSTANCES)]
    try:
        for each in instances:
            each.wait_for("RUNNING", seconds_max=60)
        feed = Feed(broker.bootstrap, topic)
        killing = Killing(broker, instances, instance)
        with committed_items(broker.bootstrap, target, partitions=PARTITIONS, item=Message.value) as seen:
            # So little ahead that the work lasts through all the kills.
            ahead = RECORDS // (LEAST_KILLS + 1)

            def meanwhile() -> None:
                killing.when_due()
                share = RECORDS * (killing.kills + 1) // (LEAST_KILLS + 1)
                feed.send_up_to(min(share, len(seen.counts) + ahead))

            seen.wait_for(RECORDS, seconds_max=SECONDS_MAX, meanwhile=meanwhile)
            feed.finish()
            seen.assert_each_once(RECORDS)
    finally:
        for each in instances:
            each.stop()
    assert killing.kills >= LEAST_KILLS
    ended = [re.fullmatch(r"STOPPED committed=(\d+) aborted=(\d+) lives=(\d+)", each.said[-1]) for each in instances]
    assert all(ended), [each.said[-1] for each in instances]
