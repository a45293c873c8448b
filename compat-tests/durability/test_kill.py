"""kill -9 at random moments, under load: what was acknowledged is there, in order, once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import KafkaError, Message
from harness.batches import batch_of
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all, producer, read_everything, send_patiently
from harness.errors import Error
from harness.requests import end_offset, new_producer_id, produce
from harness.waiting import eventually
from harness.wire import Wire

KILLS = 5
PRODUCERS = 3
# Small segments, so that kills also fall on rolls; a low index interval, so that indexes are rebuilt in earnest.
SMALL = {"segment_bytes": "1048576", "index_interval_bytes": "512"}
POLICIES: Mapping[str, Mapping[str, str]] = {
    "fsync before the ack": {"flush_messages": "1", **SMALL},
    "page cache": SMALL,
}


class Load:
    """One idempotent producer that sends numbered values to its own partition until told to stop."""

    def __init__(self, broker: BrokerProcess, topic: str, *, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.acknowledged: dict[int, int] = {}
        self.errors: list[KafkaError] = []
        self.sent = 0
        self.stop = threading.Event()
        self._producer = producer(
            broker.bootstrap, enable_idempotence=True, linger_ms=1, queue_buffering_max_messages=2000,
            reconnect_backoff_ms=10, reconnect_backoff_max_ms=100, retry_backoff_ms=20,
        )  # fmt: skip
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            value = b"%d:%d " % (self.partition, self.sent) + b"x" * (self.sent % 700)
            send_patiently(self._producer, self.topic, value, partition=self.partition, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0)
        self.unsent = self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        number = int((message.value() or b"").split(b" ")[0].split(b":")[1])
        self.acknowledged[number] = message.offset()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_acknowledged_records_survive_kills(
    new_broker: Callable[..., BrokerProcess], topic: str, policy: Mapping[str, str]
) -> None:
    seed = time.time_ns() & 0xFFFF_FFFF
    chance = random.Random(seed)
    broker = new_broker()
    create_topic(broker.bootstrap, topic, partitions=PRODUCERS, **policy)
    loads = [Load(broker, topic, partition=index) for index in range(PRODUCERS)]
    try:
        for _ in range(KILLS):
            # Some progress first, then a moment by chance within the traffic.
            goal = {load.partition: len(load.acknowledged) + chance.randrange(50, 3000) for load in loads}
            eventually(
                lambda goal=goal: any(len(load.acknowledged) >= goal[load.partition] for load in loads),
                seconds_max=60, what="acknowledgements",
            )  # fmt: skip
            broker.restart(clean=False)
    finally:
        for load in loads:
            load.stop.set()
        for load in loads:
            load.thread.join(120)
    for load in loads:
        assert (load.errors, load.unsent) == ([], 0), f"seed {seed}"
        stored = read_everything(broker.bootstrap, topic, partition=load.partition)
        numbers = [int((message.value() or b"").split(b" ")[0].split(b":")[1]) for message in stored]
        assert numbers == list(range(load.sent)), f"lost, doubled or out of order; seed {seed}"
        at = {number: message.offset() for number, message in zip(numbers, stored, strict=True)}
        assert at == load.acknowledged, f"an acknowledged offset moved; seed {seed}"


def test_state_of_producers_survives_a_kill(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    """A batch sent again after the crash is still known as a duplicate: nothing but the log may be needed for it."""
    broker = new_broker()
    create_topic(broker.bootstrap, topic, flush_messages="1")
    batches: list[bytes] = []
    with Wire(broker.host, broker.port) as wire:
        producer_id = new_producer_id(wire)
        for sequence in range(8):
            batches.append(
                batch_of(b"%d" % sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            )
            assert produce(wire, topic, batches[-1]).base_offset == sequence
    broker.restart(clean=False)
    with Wire(broker.host, broker.port) as wire:
        eventually(lambda: end_offset(wire, topic) == 8)
        assert produce(wire, topic, batches[-1]).base_offset == 7
        gap = batch_of(b"gap", producer_id=producer_id, producer_epoch=0, base_sequence=20)
        assert produce(wire, topic, gap).error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = batch_of(b"8", producer_id=producer_id, producer_epoch=0, base_sequence=8)
        assert produce(wire, topic, following).base_offset == 8
        assert new_producer_id(wire) != producer_id


def test_torn_tail_is_cut_and_the_rest_kept(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    """Half a batch at the end of the log, as a crash in the middle of a write leaves it."""
    broker = new_broker()
    create_topic(broker.bootstrap, topic)
    produce_all(broker.bootstrap, topic, [b"%d" % number for number in range(100)], linger_ms=0)
    broker.kill()
    (segment,) = (broker.data / f"{topic}-0").glob("*.log")
    whole = segment.read_bytes()
    size = 12 + int.from_bytes(whole[8:12], "big")  # of the first batch; a whole one in this place would be damage
    segment.write_bytes(whole + whole[: size // 2])
    broker.start()
    stored = read_everything(broker.bootstrap, topic)
    assert [message.value() for message in stored] == [b"%d" % number for number in range(100)]
    (answer,) = produce_all(broker.bootstrap, topic, [b"next"]).acknowledged
    assert answer == (0, 100, b"next")
