"""How steadily one producer is answered on three nodes while a follower fetches the gigabyte that it missed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, NewTopic

from bench import wire
from bench.brokers import write_dirty_pages
from bench.cases import QUICK, Scale, fresh_name, sample
from bench.cluster_brokers import NODES, Cluster, wait_until
from bench.cluster_cases import PARTITIONS, TIMEOUT_S, Topics
from bench.steady_cases import WARM_UP_S, batches_each, latencies, steady_beside, stream_loads

LEADERS, FOLLOWER = NODES[:2], NODES[2]  # nothing is led by the node that goes away, so no leader moves


@contextmanager
def _led_by(cluster: Cluster, topics: Topics, kind: str, leaders: list[int]) -> Iterator[str]:
    """A topic with a partition for each of these leaders, and all nodes as replicas."""
    name = fresh_name(kind)
    replicas = [[leader, *(node_id for node_id in NODES if node_id != leader)] for leader in leaders]
    request = NewTopic(name, len(leaders), replica_assignment=replicas, config={"min.insync.replicas": "2"})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([request])[name].result(TIMEOUT_S)
    wait_until(lambda: topics.is_whole(name), timeout_s=TIMEOUT_S, what=f"{name} in sync")
    try:
        yield name
    finally:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_of_live, "log_level": 0})
        admin.delete_topics([name])[name].result(TIMEOUT_S)


def catch_up(cluster: Cluster, topics: Topics, scale: Scale) -> dict[str, float]:
    """Partitions 0, 2, 4 and 1, 3, 5 have a leader, and a loader, each."""
    with (
        _led_by(cluster, topics, "steady-missed", [*LEADERS] * (PARTITIONS // len(LEADERS))) as missed,
        _led_by(cluster, topics, "steady", [LEADERS[0]]) as name,
    ):
        cluster.end(FOLLOWER)
        wait_until(lambda: topics.is_without(missed, FOLLOWER), timeout_s=TIMEOUT_S, what="the loss being noticed")
        addresses = [cluster.address(leader) for leader in LEADERS]
        loads = stream_loads(addresses, missed, acks=-1, batches=batches_each(scale.missed_bytes))
        try:
            sample(cluster, loads)
            write_dirty_pages()
        except BaseException:
            cluster.start(FOLLOWER)
            raise
        names = (missed, name)
        taken_s: list[float] = []

        def come_back() -> None:
            begun = time.monotonic()
            cluster.start(FOLLOWER)
            wait_until(lambda: _is_whole(cluster, names), timeout_s=TIMEOUT_S, what="the follower in sync again")
            taken_s.append(time.monotonic() - begun)

        report = steady_beside(cluster.address(LEADERS[0]), name, come_back)
        return {**latencies("steady-catch-up", report), "steady-catch-up.time": taken_s[0]}


def _is_whole(cluster: Cluster, names: tuple[str, ...]) -> bool:
    """By one small request on a socket: an admin client for each look would itself be a disturbance."""
    seen = [each for name in names for each in wire.partitions(cluster.address(LEADERS[0]), topics_like=name)]
    return all(leader >= 0 and in_sync == len(NODES) for leader, in_sync in seen)


def warm_up(cluster: Cluster, topics: Topics, *, seconds: float) -> None:
    """Both loads, without a node going away."""
    deadline = time.monotonic() + seconds
    with (
        _led_by(cluster, topics, "steady-warm", [*LEADERS] * (PARTITIONS // len(LEADERS))) as filled,
        _led_by(cluster, topics, "steady", [LEADERS[0]]) as name,
    ):
        addresses = [cluster.address(leader) for leader in LEADERS]
        loads = stream_loads(addresses, filled, acks=-1, batches=batches_each(QUICK.missed_bytes))
        while time.monotonic() < deadline:
            sample(cluster, loads)
            steady_beside(cluster.address(LEADERS[0]), name, lambda: time.sleep(WARM_UP_S))
