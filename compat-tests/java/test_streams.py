"""Kafka Streams with exactly_once_v2: a stateful count goes on through kill -9 of its instances and of the broker.

The topology has all that Streams can ask of a broker: a repartition topic (purged with DeleteRecords), a RocksDB store
restored from its compacted changelog, offsets and outputs in one transaction. Nothing is cached, so each word's counts
in the target must be 1, 2, 3, …: a count that is missing, repeated or wrong is seen, not only a wrong sum.
"""

from __future__ import annotations

import os
import random
import struct
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Message
from harness.broker_process import BrokerProcess
from harness.committed import committed_items
from harness.confluent_client import create_topic, producer, send_patiently
from harness.java_processes import JavaProcess

RECORDS = int(os.environ.get("COMPAT_STREAMS_RECORDS", "40000"))
WORDS = 200
PARTITIONS = 3
INSTANCES = 2
TURNS = 4
SECONDS_MAX = 120 + RECORDS / 500


class Feed:
    """An idempotent producer of words: a share for each turn, as it is told to go on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._sender = producer(bootstrap, enable_idempotence=True, reconnect_backoff_max_ms=200)
        chance = random.Random(7)
        self._words = [b"word-%d" % chance.randrange(WORDS) for _ in range(RECORDS)]
        self.wanted = Counter(self._words)
        self.share = -(-RECORDS // (TURNS + 1))
        self.unsent = RECORDS
        self._due = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        self._due.release()

    def _run(self) -> None:
        for start in range(0, RECORDS, self.share):
            self._due.acquire()
            for number in range(start, min(start + self.share, RECORDS)):
                send_patiently(self._sender, self._topic, self._words[number], partition=number % PARTITIONS)
        self.unsent = self._sender.flush(120)

    def join(self) -> None:
        self._thread.join(150)
        assert self.unsent == 0


def counted(message: Message) -> tuple[bytes, int]:
    (count,) = struct.unpack(">q", message.value() or b"")
    return message.key() or b"", int(count)


def test_counts_are_right_after_kills(new_broker: Callable[..., BrokerProcess], topic: str, tmp_path: Path) -> None:
    broker = new_broker({"group.initial.rebalance.delay.ms": "0"})
    target = f"{topic}-out"
    create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    create_topic(broker.bootstrap, target, partitions=PARTITIONS)

    def instance(number: int) -> JavaProcess:
        home = tmp_path / f"streams-{number}"
        return JavaProcess("StreamsCount", broker.bootstrap, topic, target, str(home / "state"), directory=home)

    instances = [instance(number) for number in range(INSTANCES)]
    try:
        feed = Feed(broker.bootstrap, topic)
        for each in instances:
            each.wait_for("RUNNING", seconds_max=90)
        with committed_items(broker.bootstrap, target, partitions=PARTITIONS, item=counted) as seen:
            for turn in range(TURNS):
                # Into the work of this turn: the first half of its counts is committed, the rest under way.
                feed.go_on()
                seen.wait_for(feed.share * turn + feed.share // 2, seconds_max=SECONDS_MAX)
                if turn % 2 == 0:
                    victim = turn // 2 % INSTANCES
                    instances[victim].kill()
                    instances[victim] = instance(victim)
                else:
                    broker.restart(clean=False)
            feed.go_on()
            feed.join()
            seen.wait_for(RECORDS, seconds_max=SECONDS_MAX)
            seen.assert_each_once(RECORDS)
    finally:
        for each in instances:
            each.stop()
    assert set(seen.counts) == {(word, count + 1) for word, total in feed.wanted.items() for count in range(total)}
    assert [each.said[-1] for each in instances] == ["STOPPED"] * INSTANCES
