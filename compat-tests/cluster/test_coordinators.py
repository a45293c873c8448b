"""Groups and transactions on a cluster: their coordinators move with the leadership, and nothing decided is undone."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from harness.cluster import Cluster
from harness.waiting import eventually

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 3

NewCluster = Callable[..., Cluster]


def consumer(cluster: Cluster, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "log_level": 2,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def fill(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    failed: list[object] = []
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(60) == 0
    assert not failed


@contextmanager
def killing(cluster: Cluster, *, seed: int, every: float = 3.0) -> Iterator[list[int]]:
    """Kill one node after the other, and start it again."""
    random, stop, killed = Random(seed), threading.Event(), list[int]()

    def run() -> None:
        while not stop.wait(every):
            node = random.choice(list(cluster.nodes.values()))
            node.kill()
            killed.append(node.node_id)
            stop.wait(0.5)
            node.start()
            for topic in ("t", "__transaction_state"):
                cluster.await_in_sync(topic)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join(120)


def test_committed_offsets_survive_the_death_of_every_coordinator_in_turn(new_cluster: NewCluster) -> None:
    cluster = new_cluster(SETTINGS)
    cluster.create_topic("t", partitions=PARTITIONS, min_insync_replicas="2")
    groups = [f"group-{number}" for number in range(6)]
    reader = {group: consumer(cluster, group) for group in groups}
    for number, group in enumerate(groups):
        wanted = [TopicPartition("t", index, 100 * number + index) for index in range(PARTITIONS)]
        eventually(lambda group=group, wanted=wanted: committed_by(reader[group], wanted), seconds_max=30)
    for node in cluster:
        cluster.await_in_sync("__consumer_offsets")
        node.kill()
        for number, group in enumerate(groups):
            found = read_back(reader[group])
            assert found == [100 * number + index for index in range(PARTITIONS)], (node.node_id, group)
        node.start()
    for each in reader.values():
        each.close()


def committed_by(reader: Consumer, wanted: list[TopicPartition]) -> bool:
    try:
        reader.commit(offsets=wanted, asynchronous=False)
    except KafkaException:
        return False
    return True


def read_back(reader: Consumer) -> list[int]:
    deadline = time.monotonic() + 60
    while True:
        try:
            return [each.offset for each in reader.committed([TopicPartition("t", n) for n in range(PARTITIONS)], 10)]
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_group_goes_on_when_its_coordinator_dies(new_cluster: NewCluster) -> None:
    cluster = new_cluster(SETTINGS)
    cluster.create_topic("t", partitions=PARTITIONS, min_insync_replicas="2")
    fill(cluster, "t", 300)
    member = consumer(cluster, "g")
    member.subscribe(["t"])
    seen: dict[tuple[int, int], int] = defaultdict(int)

    def read(count: int) -> None:
        deadline = time.monotonic() + 90
        while len(seen) < count:
            assert time.monotonic() < deadline, f"{len(seen)} of {count}"
            for message in member.consume(50, timeout=0.5):
                if message.error() is None:
                    seen[message.partition() or 0, message.offset() or 0] += 1
            try:
                member.commit(asynchronous=False)
            except KafkaException:
                continue

    read(300)
    coordinator = cluster.nodes[coordinator_of(cluster, "g")]
    coordinator.kill()
    fill(cluster, "t", 300)
    read(600)
    coordinator.start()
    member.close()


def coordinator_of(cluster: Cluster, group: str) -> int:
    asked = cluster.admin().list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    assert asked[group].result(30)
    described = cluster.admin().describe_consumer_groups([group])[group].result(30)
    return int(described.coordinator.id)


def test_transactions_are_all_or_nothing_while_nodes_die(new_cluster: NewCluster) -> None:
    """Each transaction writes its number to every partition. Whoever reads committed records sees it in all or in none,
    and in all if its commit was acknowledged."""
    cluster = new_cluster(SETTINGS)
    cluster.create_topic("t", partitions=PARTITIONS, min_insync_replicas="2")
    committed, aborted, unknown = set[int](), set[int](), set[int]()
    with killing(cluster, seed=5) as killed:
        producer = Writer(cluster)
        deadline = time.monotonic() + 25
        number = 0
        while time.monotonic() < deadline:
            outcome = producer.transact(number, abort=number % 5 == 4)
            {"committed": committed, "aborted": aborted, "unknown": unknown}[outcome].add(number)
            number += 1
    found = read_committed(cluster)
    summary = f"{len(committed)} committed, {len(aborted)} aborted, {len(unknown)} unknown, killed {killed}"
    print(summary)
    for partition, numbers in found.items():
        assert len(numbers) == len(set(numbers)), f"doubled in {partition}; {summary}"
        assert committed <= set(numbers), f"lost in {partition}: {sorted(committed - set(numbers))[:5]}; {summary}"
        assert not aborted & set(numbers), f"aborted, yet in {partition}; {summary}"
    assert set(found[0]) == set(found[1]) == set(found[2]), summary
    assert len(committed) > 20, summary
    assert killed


class Writer:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = self._open()

    def _open(self) -> Producer:
        while True:
            producer = Producer(
                {
                    "bootstrap.servers": self._cluster.bootstrap,
                    "transactional.id": "writer",
                    "transaction.timeout.ms": 20_000,
                    "linger.ms": 1,
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 2,
                }
            )
            try:
                producer.init_transactions(30)
            except KafkaException:
                continue
            return producer

    def transact(self, number: int, *, abort: bool) -> str:
        """What the producer was told came of it."""
        try:
            self._producer.begin_transaction()
            for partition in range(PARTITIONS):
                self._producer.produce("t", b"%d" % number, partition=partition)
            if abort:
                self._producer.abort_transaction(30)
                return "aborted"
            return self._commit()
        except KafkaException as error:
            return self._give_up(error)

    def _commit(self) -> str:
        deadline = time.monotonic() + 60
        while True:
            try:
                self._producer.commit_transaction(30)
                return "committed"
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _give_up(self, error: KafkaException) -> str:
        if error.args[0].txn_requires_abort():
            try:
                self._producer.abort_transaction(30)
                return "aborted"
            except KafkaException:
                pass
        self._producer = self._open()  # which fences the old one, and ends what it left open
        return "unknown"


def read_committed(cluster: Cluster) -> dict[int, list[int]]:
    reader = consumer(cluster, "final", isolation_level="read_committed")
    reader.assign([TopicPartition("t", index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    ends = {
        index: reader.get_watermark_offsets(TopicPartition("t", index), timeout=30)[1] for index in range(PARTITIONS)
    }
    deadline = time.monotonic() + 60
    while any(at(reader, index) < end for index, end in ends.items()):
        assert time.monotonic() < deadline, f"the end is not reached: a transaction hangs? {ends}"
        for message in reader.consume(500, timeout=0.5):
            assert message.error() is None, message.error()
            found[message.partition() or 0].append(int(message.value() or b""))
    reader.close()
    return found


def at(reader: Consumer, index: int) -> int:
    offset = reader.position([TopicPartition("t", index)])[0].offset
    return 0 if offset == OFFSET_INVALID else int(offset)
