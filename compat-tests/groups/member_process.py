"""A member of a group in a process of its own, of any of the Python clients: run as a script.

    python member_process.py '{"client": "aiokafka", "bootstrap": …, "group": …, "topic": …, "session_ms": …}'

It says what it read before it commits it and that it is committed afterwards, one line of JSON each, so whoever kills
it knows which records were at risk. It commits every `COMMIT_EVERY` records (kafka-python: after every poll), when
partitions are revoked, and when it leaves, which it does once its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

COMMIT_EVERY = 2000
COMMIT_SECONDS_MAX = 30
HEARTBEAT_MS = 300
RETRY_SECONDS = 0.05


class Journal:
    """What this member read and has not committed, told to the test as it changes."""

    def __init__(self) -> None:
        self.pending: dict[int, int] = {}
        self._count = 0

    @property
    def is_due(self) -> bool:
        return self._count >= COMMIT_EVERY

    def read(self, records: Iterable[tuple[int, int]]) -> None:
        """Partition and offset of each record, in the order in which the client returned them."""
        runs: list[list[int]] = []
        last: dict[int, list[int]] = {}
        for partition, offset in records:
            run = last.get(partition)
            if run is not None and run[2] + 1 == offset:
                run[2] = offset
            else:
                last[partition] = run = [partition, offset, offset]
                runs.append(run)
            self._count += 1
        if runs:
            self.pending |= {partition: run[2] + 1 for partition, run in last.items()}
            say(read=runs)

    def committed(self, offsets: Mapping[int, int]) -> None:
        self._forget(offsets)
        say(committed=list(offsets.items()))

    def given_up(self, offsets: Mapping[int, int], why: str) -> None:
        """They are no longer ours, or cannot be committed: another member may read them again."""
        self._forget(offsets)
        say(given_up=list(offsets), why=why)

    def _forget(self, offsets: Mapping[int, int]) -> None:
        self._count = 0
        self.pending = {key: value for key, value in self.pending.items() if offsets.get(key) != value}


def say(**event: Any) -> None:
    print(json.dumps({"at": time.time_ns() // 1_000_000, **event}), flush=True)


def stdin_ends(then: Callable[[], object]) -> None:
    def wait() -> None:
        sys.stdin.read()
        then()

    threading.Thread(target=wait, daemon=True).start()


def commit_patiently(journal: Journal, attempt: Callable[[dict[int, int]], str | None]) -> None:
    """Tries until it is done or refused; `attempt` returns why it was refused and raises what is worth another try."""
    if not (offsets := dict(journal.pending)):
        return
    deadline = time.monotonic() + COMMIT_SECONDS_MAX
    while True:
        try:
            refused = attempt(offsets)
        except Exception as error:
            if time.monotonic() > deadline:
                journal.given_up(offsets, repr(error))
                return
            time.sleep(RETRY_SECONDS)  # the broker is away, or the group is being loaded
            continue
        if refused is None:
            journal.committed(offsets)
        else:
            journal.given_up(offsets, refused)
        return


def run_confluent(options: dict[str, Any], journal: Journal) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    # Not ILLEGAL_GENERATION: a cooperative member reads on while it joins, and a commit may cross the answer that
    # brings the next generation. What it still owns then, it can still commit.
    refusals = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID}
    settings = {
        "bootstrap.servers": options["bootstrap"], "group.id": options["group"], "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 200, "log_level": 0,
        **options["settings"],
    }  # fmt: skip
    if settings.get("group.protocol") != "consumer":  # there, both are the broker's
        settings |= {"session.timeout.ms": options["session_ms"], "heartbeat.interval.ms": HEARTBEAT_MS}
    consumer = Consumer(settings)
    stop = threading.Event()
    stdin_ends(stop.set)

    def attempt(offsets: dict[int, int]) -> str | None:
        wanted = [TopicPartition(options["topic"], *each) for each in offsets.items()]
        try:
            for each in consumer.commit(offsets=wanted, asynchronous=False):
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            if error.args[0].code() in refusals:
                return str(error)
            raise
        return None

    def commit(*_: object) -> None:
        commit_patiently(journal, attempt)

    def lost(_: object, partitions: list[Any]) -> None:
        say(lost=[each.partition for each in partitions])
        journal.given_up(dict(journal.pending), "lost")

    consumer.subscribe([options["topic"]], on_revoke=commit, on_lost=lost)
    while not stop.is_set():
        messages = consumer.consume(500, 0.1)
        journal.read((each.partition(), each.offset()) for each in messages if each.error() is None)
        if journal.is_due:
            commit()
    commit()
    consumer.close()


def run_kafka_python(options: dict[str, Any], journal: Journal) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import CommitFailedError, RebalanceInProgressError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"], group_id=options["group"], auto_offset_reset="earliest",
        enable_auto_commit=False, partition_assignment_strategy=[RangePartitionAssignor], fetch_max_wait_ms=100,
        session_timeout_ms=options["session_ms"], heartbeat_interval_ms=HEARTBEAT_MS, reconnect_backoff_max_ms=200,
    )  # fmt: skip
    stop = threading.Event()
    stdin_ends(stop.set)

    def attempt(offsets: dict[int, int]) -> str | None:
        topic = options["topic"]
        try:
            consumer.commit({TopicPartition(topic, key): OffsetAndMetadata(at, "", -1) for key, at in offsets.items()})
        except (CommitFailedError, RebalanceInProgressError) as error:
            return repr(error)
        return None

    class Listener(ConsumerRebalanceListener):
        """Called on the client's own thread, where nothing may block: so everything is committed before each poll."""

        def on_partitions_revoked(self, revoked: object) -> None:
            pass

        def on_partitions_assigned(self, assigned: object) -> None:
            pass

        def on_partitions_lost(self, lost: Iterable[Any]) -> None:
            say(lost=[each.partition for each in lost])
            journal.given_up(dict(journal.pending), "lost")

    consumer.subscribe([options["topic"]], listener=Listener())
    while not stop.is_set():
        polled = consumer.poll(timeout_ms=100, max_records=500)
        journal.read((each.partition, each.offset) for records in polled.values() for each in records)
        commit_patiently(journal, attempt)
    consumer.close()


async def run_aiokafka(options: dict[str, Any], journal: Journal) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import CommitFailedError, KafkaError

    consumer = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap"], group_id=options["group"], auto_offset_reset="earliest",
        enable_auto_commit=False, partition_assignment_strategy=[RangePartitionAssignor], fetch_max_wait_ms=100,
        session_timeout_ms=options["session_ms"], heartbeat_interval_ms=HEARTBEAT_MS,
    )  # fmt: skip
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    stdin_ends(lambda: loop.call_soon_threadsafe(stop.set))
    one_at_a_time = asyncio.Lock()  # its listener runs beside whoever reads

    async def commit() -> None:
        async with one_at_a_time:
            if not (offsets := dict(journal.pending)):
                return
            deadline = time.monotonic() + COMMIT_SECONDS_MAX
            while True:
                try:
                    await consumer.commit({TopicPartition(options["topic"], key): at for key, at in offsets.items()})
                except KafkaError as error:
                    if isinstance(error, CommitFailedError) or time.monotonic() > deadline:
                        journal.given_up(offsets, repr(error))
                        return
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    journal.committed(offsets)
                    return

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: object) -> None:
            await commit()

        async def on_partitions_assigned(self, assigned: object) -> None:
            pass

    consumer.subscribe([options["topic"]], listener=Listener())
    await consumer.start()
    while not stop.is_set():
        # Nothing is awaited between the hand-over of records and their entry: no revocation can come in between.
        polled = await consumer.getmany(timeout_ms=100, max_records=500)
        journal.read((each.partition, each.offset) for records in polled.values() for each in records)
        if journal.is_due:
            await commit()
    await commit()
    await consumer.stop()


def main() -> None:
    options = json.loads(sys.argv[1])
    journal = Journal()
    if options["client"] == "aiokafka":
        asyncio.run(run_aiokafka(options, journal))
    else:
        {"confluent": run_confluent, "kafka-python": run_kafka_python}[options["client"]](options, journal)
    say(left=True)


if __name__ == "__main__":
    main()
