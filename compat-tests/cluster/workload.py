"""Clients that write and read all the time, whatever happens to the cluster, and remember what they were told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence

from cluster.history import UNKNOWN, History, Place, Value
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

FLUSH_SECONDS_MAX = 90
READ_SECONDS_MAX = 20


class Writer:
    """One idempotent producer with acks=all, at a steady rate, to all partitions in turn."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        history: History,
        per_second: float = 200,
        client: Mapping[str, str] | None = None,
    ) -> None:
        """`client`: what it has to say to get in."""
        self._number = number
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._pause = 1 / per_second
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                # Or a gap would show how long the client waits for a node that stands still, and not the cluster.
                "request.timeout.ms": 1000,
                "socket.timeout.ms": 2000,
                "reconnect.backoff.max.ms": 500,
                "client.id": f"writer-{number}",
                "log_level": 2,
                **(client or {}),
            }
        )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self.stop.is_set():
            due = max(due + self._pause, time.monotonic() - 1)
            value = Value(self._number, self._sent)
            partition = self._sent % self._partitions
            try:
                self._history.sent[value] = partition
                self._producer.produce(
                    self._topic, value.encode(self._sent % 300), partition=partition, on_delivery=self._delivered
                )
                self._sent += 1
            except BufferError:
                del self._history.sent[value]
            except KafkaException as error:
                del self._history.sent[value]
                self._history.failed[Value(self._number, -1)] = str(error)
                return
            self._producer.poll(max(0.0, due - time.monotonic()))
        self._producer.flush(FLUSH_SECONDS_MAX)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = Value.decode(message.value() or b"")
        with self._history.lock:
            if error is not None:
                self._history.failed[value] = str(error)
            else:
                offset = message.offset()
                place = Place(message.partition() or 0, UNKNOWN if offset is None else offset)
                self._history.acknowledged.append((value, place, time.monotonic()))


class Reader:
    """A consumer without a group that reads everything from the beginning, as it comes."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        history: History,
        client: Mapping[str, str] | None = None,
    ) -> None:
        self._number = number
        self._history = history
        self.errors: list[str] = []
        self._turned_at = time.monotonic()
        self._state = "{}"  # librdkafka's own view of it, some seconds ago
        watched: dict[str, object] = {"statistics.interval.ms": 5000, "stats_cb": self._note_state}
        self._consumer = _consumer(bootstrap, f"reader-{number}", {**(client or {}), **watched})
        self._consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        reads = self._history.reads[self._number]
        while not self.stop.is_set():
            for message in self._consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    reads.append((_place(message), Value.decode(message.value() or b"")))
                else:
                    self.errors.append(f"{time.time():.3f} {message.partition()}: {message.error()}")
            self._turned_at = time.monotonic()
        self._consumer.close()

    def _note_state(self, state: str) -> None:
        self._state = state

    def finish(self, count: int) -> None:
        """Whatever happened, in the end a reader has read everything."""
        reads = self._history.reads[self._number]
        deadline = time.monotonic() + READ_SECONDS_MAX
        while len(reads) < count and time.monotonic() < deadline:
            time.sleep(0.1)
        silent = time.monotonic() - self._turned_at
        self.stop.set()
        self.thread.join(30)
        assert len(reads) >= count, (
            f"reader {self._number} has read {len(reads)} of {count} records, and gets no further: {self.errors[-20:]};"
            f" it last came back from consume {silent:.1f} s before; {_told(self._state)}"
        )


def _told(state: str) -> str:
    """What librdkafka says of a consumer's brokers and partitions, in short."""
    known = json.loads(state)
    brokers = {name: (each["state"], each["stateage"] // 1000) for name, each in known.get("brokers", {}).items()}
    wanted = ("leader", "fetch_state", "fetchq_cnt", "next_offset", "app_offset", "hi_offset", "ls_offset")
    partitions = {
        number: {name: each.get(name) for name in wanted}
        for topic in known.get("topics", {}).values()
        for number, each in topic["partitions"].items()
    }
    return f"at {known.get('time')}: brokers (state, for ms) {brokers}, partitions {partitions}"


def _place(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Place(partition, offset)


def _consumer(bootstrap: str, name: str, client: Mapping[str, object] | None = None) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "client.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
            **(client or {}),
        }
    )


def read_everything(
    bootstrap: str, topic: str, *, partitions: int, client: Mapping[str, str] | None = None
) -> dict[int, list[tuple[int, Value]]]:
    """The log as it is in the end."""
    consumer = _consumer(bootstrap, "final", client)
    try:
        ends = {index: _end(consumer, topic, index) for index in range(partitions)}
        found: dict[int, list[tuple[int, Value]]] = {index: [] for index in range(partitions)}
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        deadline = time.monotonic() + 120
        while any(_behind(found[index], ends[index]) for index in ends):
            assert time.monotonic() < deadline, f"the final read does not get on: {ends}"
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None, message.error()
                place = _place(message)
                found[place.partition].append((place.offset, Value.decode(message.value() or b"")))
        return found
    finally:
        consumer.close()


def _behind(records: Sequence[tuple[int, Value]], end: int) -> bool:
    return (records[-1][0] + 1 if records else 0) < end


def _end(consumer: Consumer, topic: str, index: int) -> int:
    deadline = time.monotonic() + 60
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=10)[1])
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)
