"""Restarting beside Apache Kafka: `python -m bench.restart --case recovery|partitions|offsets`.

recovery    so many MB in ten partitions, nothing of it synced yet; kill -9; until every partition tells its end offset
partitions  2,000 partitions with a record each; kill -9; likewise
clean       the same data as `recovery`; a clean stop; likewise
offsets     a million commits of 10,000 keys; a clean stop; until a committed offset is answered

Time is counted from the start of the process. The page cache is warm for both. That nothing was synced is arranged by
removing the checkpoint of recovery points, so that one filling serves all rounds.
"""

from __future__ import annotations

import argparse
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.rounds import BrokerProcess, Figures, add_options, run

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
    sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 65536, "acks": 1, "log_level": 0})
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


def stop_uncleanly(broker: BrokerProcess) -> None:
    broker.kill()
    for checkpoint in broker.data.rglob("recovery-point-offset-checkpoint"):
        checkpoint.unlink()


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


def filled_with_records(broker: BrokerProcess, *, partitions: int, count: int) -> None:
    create(broker.bootstrap, partitions)
    fill(broker.bootstrap, partitions=partitions, count=count)


def filled_with_commits(broker: BrokerProcess, *, commits: int) -> None:
    create(broker.bootstrap, PARTITIONS_OF_GROUP)
    commit_all(broker.bootstrap, commits)
    time.sleep(5)  # the cleaner has its turn


def loaded(broker: BrokerProcess, *, commits: int) -> Figures:
    broker.stop()
    metadata = seconds_until(broker, lambda: topics(broker.bootstrap))
    broker.stop()
    last = commits // GROUPS // PARTITIONS_OF_GROUP - 1
    answered = seconds_until(broker, lambda: committed(broker.bootstrap) == last)
    size = sum(path.stat().st_size for path in broker.data.glob("__consumer_offsets-0/*.log"))
    return {"offset, s": answered, "metadata, s": metadata, "difference, s": answered - metadata, "MB left": size / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=["recovery", "clean", "partitions", "offsets"], required=True)
    parser.add_argument("--mb", type=int, default=5000)
    parser.add_argument("--commits", type=int, default=1_000_000)
    add_options(parser)
    options = parser.parse_args()
    partitions, count = (2000, 2000) if options.case == "partitions" else (10, options.mb * 1000)

    def measure(broker: BrokerProcess, _: int) -> Figures:
        if options.case == "offsets":
            return loaded(broker, commits=options.commits)
        if options.case == "clean":
            broker.stop()
        else:
            stop_uncleanly(broker)
        return {"s": seconds_until(broker, lambda: end_offsets(broker.bootstrap, partitions) == count)}

    def prepare(broker: BrokerProcess) -> None:
        if options.case == "offsets":
            filled_with_commits(broker, commits=options.commits)
        else:
            filled_with_records(broker, partitions=partitions, count=count)

    run(options, SETTINGS, fill=prepare, measure=measure)


if __name__ == "__main__":
    main()
