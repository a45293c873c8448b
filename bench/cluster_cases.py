"""What three brokers do together: replicated produce, acknowledgements, a leader's death, catching up, idleness."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, TopicDescription

from bench.brokers import write_dirty_pages
from bench.cases import MIB, fresh_name, sample
from bench.cluster_brokers import NODES, Cluster, wait_until
from bench.loaders.process import Load

TIMEOUT_S = 90.0
QUESTION_S = 5.0  # then another node is asked
PARTITIONS = 6
LOADERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterScale:
    produce_bytes: int = 600_000_000
    acks: int = 2_000
    failover_s: float = 20.0
    kill_after_s: float = 3.0
    catch_up_bytes: int = 1_000_000_000
    idle_partitions: int = 1_000
    idle_s: float = 15.0


QUICK = ClusterScale(
    produce_bytes=60_000_000, acks=200, failover_s=14.0, catch_up_bytes=50_000_000, idle_partitions=60, idle_s=3.0
)


class Topics:
    """Topics by way of a client that is made anew for every question: one that lives on has its own idea of who the
    controller is, and waits for a node that was killed in the meantime."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._cluster.bootstrap_of_live, "log_level": 0})

    @contextmanager
    def new(self, kind: str, *, partitions: int) -> Iterator[str]:
        name = fresh_name(kind)
        settings = {"min.insync.replicas": "2"}
        request = NewTopic(name, num_partitions=partitions, replication_factor=len(NODES), config=settings)
        admin = self._admin()  # held: its answers end with it
        admin.create_topics([request])[name].result(TIMEOUT_S)
        wait_until(lambda: self.is_whole(name), timeout_s=TIMEOUT_S, what=f"{name} in sync")
        try:
            yield name
        finally:
            admin = self._admin()
            admin.delete_topics([name])[name].result(TIMEOUT_S)

    def describe(self, name: str) -> TopicDescription | None:
        admin = self._admin()
        try:
            answer = admin.describe_topics(TopicCollection([name]), request_timeout=QUESTION_S)
            found: TopicDescription = answer[name].result(QUESTION_S)
            return found
        except (KafkaException, TimeoutError):
            return None

    def count_records(self, name: str, *, partitions: int) -> int:
        """What the brokers say they hold: the check that a load without delivery reports was delivered."""
        admin = self._admin()
        wanted = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(partitions)}
        return sum(int(each.result(TIMEOUT_S).offset) for each in admin.list_offsets(wanted).values())

    def is_whole(self, name: str) -> bool:
        found = self.describe(name)
        return found is not None and all(
            partition.leader is not None and len(partition.isr) == len(NODES) for partition in found.partitions
        )

    def is_without(self, name: str, node_id: int) -> bool:
        found = self.describe(name)
        return found is not None and all(
            partition.leader is not None and node_id not in {node.id for node in partition.isr}
            for partition in found.partitions
        )

    def leader(self, name: str) -> int:
        leaders: list[int] = []

        def is_known() -> bool:
            found = self.describe(name)
            if found is not None and found.partitions[0].leader is not None:
                leaders.append(int(found.partitions[0].leader.id))
            return bool(leaders)

        wait_until(is_known, timeout_s=TIMEOUT_S, what=f"a leader of {name}")
        return leaders[0]


def _loads(cluster: Cluster, name: str, total_bytes: int) -> list[Load]:
    client = {"bootstrap.servers": cluster.bootstrap_of_live, "acks": "all"}
    share = {
        "topic": name, "size": 1000, "client": client, "partitions": PARTITIONS, "batch": 1000,
        "records": total_bytes // 1000 // LOADERS,
    }  # fmt: skip
    firsts = range(0, PARTITIONS, PARTITIONS // LOADERS)
    return [Load(module="produce", parameters={**share, "first_partition": first}) for first in firsts]


def produce(cluster: Cluster, topics: Topics, scale: ClusterScale) -> dict[str, float]:
    with topics.new("cluster-produce", partitions=PARTITIONS) as name:
        write_dirty_pages()
        taken = sample(cluster, _loads(cluster, name, scale.produce_bytes))
        held = topics.count_records(name, partitions=PARTITIONS)
    if held != taken.records:
        raise RuntimeError(f"{cluster.name}: {taken.records} records were sent, {held} are there")
    payload = taken.records * 1000
    return {
        "cluster-produce.rate": payload / taken.wall_s / 1e6,
        "cluster-produce.cpu": taken.cpu_s / (payload / 1e9),
        **{f"cluster-produce.{who}_cores": cores for who, cores in taken.cores.items()},
    }


def acks(cluster: Cluster, topics: Topics, scale: ClusterScale) -> dict[str, float]:
    with topics.new("cluster-acks", partitions=1) as name:
        client = {"bootstrap.servers": cluster.bootstrap}
        parameters = {"topic": name, "client": client, "size": 1000, "warm_up": 200, "records": scale.acks}
        report = sample(cluster, [Load(module="acks", parameters=parameters)]).reports[0]
    return {"cluster-acks.p50": report["p50_ms"], "cluster-acks.p99": report["p99_ms"]}


def failover(cluster: Cluster, topics: Topics, scale: ClusterScale) -> dict[str, float]:
    """The leader is killed under a producer at its defaults, and started again afterwards."""
    with topics.new("cluster-failover", partitions=1) as name:
        leader = topics.leader(name)
        client = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        parameters = {"topic": name, "client": client, "size": 100, "warm_up": 100, "seconds": scale.failover_s}
        killer = threading.Timer(scale.kill_after_s, cluster.kill, (leader,))
        killer.start()
        try:
            report = sample(cluster, [Load(module="acks", parameters=parameters)]).reports[0]
        finally:
            killer.join()
            cluster.start(leader)
        wait_until(lambda: topics.is_whole(name), timeout_s=TIMEOUT_S, what=f"{name} in sync again")
    return {"cluster-failover.gap": report["gap_s"]}


def catch_up(cluster: Cluster, topics: Topics, scale: ClusterScale) -> dict[str, float]:
    """A follower is away while a gigabyte is written: from its start until it is in sync everywhere again."""
    with topics.new("cluster-catch-up", partitions=PARTITIONS) as name:
        cluster.kill(NODES[-1])
        wait_until(lambda: topics.is_without(name, NODES[-1]), timeout_s=TIMEOUT_S, what="the loss being noticed")
        sample(cluster, _loads(cluster, name, scale.catch_up_bytes))
        write_dirty_pages()
        begun = time.monotonic()
        cluster.start(NODES[-1])
        wait_until(lambda: topics.is_whole(name), timeout_s=TIMEOUT_S, what=f"{name} in sync again")
        return {"cluster-catch-up.time": time.monotonic() - begun}


def idle(cluster: Cluster, topics: Topics, scale: ClusterScale) -> dict[str, float]:
    with topics.new("cluster-idle", partitions=scale.idle_partitions):
        time.sleep(scale.idle_s / 3)
        before = cluster.cpu_s()
        time.sleep(scale.idle_s)
        return {
            "cluster-idle.cpu": 1e3 * (cluster.cpu_s() - before) / scale.idle_s,
            "cluster-idle.rss": cluster.rss_bytes() / MIB,
        }


CASES: dict[str, Callable[[Cluster, Topics, ClusterScale], dict[str, float]]] = {
    "cluster-idle": idle,
    "cluster-produce": produce,
    "cluster-acks": acks,
    "cluster-failover": failover,
    "cluster-catch-up": catch_up,
}
