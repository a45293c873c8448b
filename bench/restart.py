"""Restarting beside Apache Kafka: `python -m bench.restart --case recovery|partitions|offsets`.

recovery    so many MB in ten partitions, nothing of it synced yet; kill -9; until every partition tells its end offset
partitions  2,000 partitions with a record each; kill -9; likewise
offsets     a million commits of 10,000 keys; a clean stop; until a committed offset is answered

Time is counted from the start of the process. The page cache is warm for both.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "compat-tests"))
from harness.broker_process import ApacheKafka, BrokerProcess, Tidemark

TOPIC = "log"
VALUE = b"x" * 1000
GROUPS, PARTITIONS_OF_GROUP = 100, 100
SETTINGS = {
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "10485760",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.1",
}
SECONDS_MAX = 240


def create(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(60)


def fill(bootstrap: str, *, partitions: int, count: int) -> None:
    sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 65536, "acks": 1})
    for number in range(count):
        while True:
            try:
                sender.produce(TOPIC, VALUE, partition=number % partitions)
                break
            except BufferError:
                sender.poll(0.1)
        if number % 1000 == 0:
            sender.poll(0)
    assert sender.flush(120) == 0


def end_offsets(bootstrap: str, partitions: int) -> int:
    """The sum of all; raises KafkaException while one is not there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = {TopicPartition(TOPIC, index): OffsetSpec.latest() for index in range(partitions)}
    found = admin.list_offsets(wanted, request_timeout=30)
    return sum(future.result(30).offset for future in found.values())


def seconds_until(broker: BrokerProcess, is_there: object) -> float:
    began = time.monotonic()
    broker.begin()
    while time.monotonic() < began + SECONDS_MAX:
        try:
            if broker.port and is_there():  # type: ignore[operator]
                return time.monotonic() - began
        except (KafkaException, AssertionError):
            pass
        time.sleep(0.02)
    raise TimeoutError("the broker does not answer")


def killed(broker: BrokerProcess, *, partitions: int, count: int) -> float:
    create(broker.bootstrap, partitions)
    fill(broker.bootstrap, partitions=partitions, count=count)
    broker.kill()
    return seconds_until(broker, lambda: end_offsets(broker.bootstrap, partitions) == count)


def commit_all(bootstrap: str, commits: int) -> None:
    for group in range(GROUPS):
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{group}"})
        for turn in range(commits // GROUPS // PARTITIONS_OF_GROUP):
            offsets = [TopicPartition(TOPIC, index, turn) for index in range(PARTITIONS_OF_GROUP)]
            reader.commit(offsets=offsets, asynchronous=False)
        reader.close()


def committed(bootstrap: str) -> int:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "group-7", "log_level": 0})
    try:
        return int(reader.committed([TopicPartition(TOPIC, 3)], timeout=5)[0].offset)
    finally:
        reader.close()


def topics(bootstrap: str) -> int:
    return len(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=5).topics)


def loaded(broker: BrokerProcess, *, commits: int) -> tuple[float, float]:
    """Until the committed offset is answered, and until the broker answers at all."""
    create(broker.bootstrap, PARTITIONS_OF_GROUP)
    commit_all(broker.bootstrap, commits)
    time.sleep(5)  # the cleaner has its turn
    broker.stop()
    metadata = seconds_until(broker, lambda: topics(broker.bootstrap))
    last = commits // GROUPS // PARTITIONS_OF_GROUP - 1
    broker.stop()
    return seconds_until(broker, lambda: committed(broker.bootstrap) == last), metadata


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=["recovery", "partitions", "offsets"], required=True)
    parser.add_argument("--mb", type=int, default=5000)
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--broker", choices=["tidemark", "kafka"], action="append")
    options = parser.parse_args()
    makers = {"tidemark": Tidemark, "kafka": ApacheKafka}
    for name in options.broker or ["tidemark", "kafka"]:
        with tempfile.TemporaryDirectory(prefix="restart-") as folder:
            broker = makers[name](Path(folder), SETTINGS)
            try:
                broker.start()
                if options.case == "offsets":
                    answered, metadata = loaded(broker, commits=options.commits)
                    size = sum(path.stat().st_size for path in Path(folder).rglob("__consumer_offsets-0/*.log"))
                    times = f"{answered:.2f} s, metadata after {metadata:.2f} s"
                    print(f"{name}: {times}; {size / 1e6:.1f} MB left", flush=True)
                elif options.case == "recovery":
                    seconds = killed(broker, partitions=10, count=options.mb * 1000)
                    print(f"{name}: {seconds:.2f} s after kill -9 with {options.mb} MB", flush=True)
                else:
                    seconds = killed(broker, partitions=2000, count=2000)
                    print(f"{name}: {seconds:.2f} s after kill -9 with 2,000 partitions", flush=True)
            finally:
                broker.close()


if __name__ == "__main__":
    main()
