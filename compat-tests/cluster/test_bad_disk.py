"""A disk that has changed what was written to it: no copy of the damage is kept while another replica is whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from cluster.workload import read_everything
from confluent_kafka import Producer
from harness.cluster import Cluster, ClusterNode
from harness.waiting import eventually

NewCluster = Callable[..., Cluster]
COUNT = 200
QUICK = {"broker.session.timeout.ms": "3000"}


def fill(cluster: Cluster) -> None:
    cluster.create_topic("t", min_insync_replicas="2")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 2}
    )
    for number in range(COUNT):
        producer.produce("t", b"1:%d " % number + b"x" * 100)
        if number % 10 == 9:
            assert producer.flush(30) == 0
    cluster.await_in_sync("t")


def segment(node: ClusterNode) -> Path:
    (found,) = (node.data / "t-0").glob("*.log")
    return found


def damage(node: ClusterNode) -> None:
    """One bit, in a record in the middle."""
    path = segment(node)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x10]))


def numbers(cluster: Cluster) -> list[int]:
    return [value.number for _, value in read_everything(cluster.bootstrap, "t", partitions=1)[0]]


def have_the_same(cluster: Cluster) -> bool:
    return len({segment(node).read_bytes() for node in cluster}) == 1


def test_a_follower_with_a_bad_record_fetches_all_of_it_anew(new_cluster: NewCluster) -> None:
    cluster = new_cluster(QUICK)
    fill(cluster)
    leader = cluster.leaders("t")[0]
    follower = next(node for node in cluster if node.node_id != leader)
    follower.kill()
    damage(follower)
    follower.start()
    eventually(lambda: "is given up and fetched anew" in follower.log, seconds_max=30)
    cluster.await_in_sync("t")
    eventually(lambda: have_the_same(cluster), seconds_max=30)
    assert numbers(cluster) == list(range(COUNT))


def test_a_leader_with_a_bad_record_steps_aside_and_fetches_it_anew(new_cluster: NewCluster) -> None:
    """The damage comes while it runs, so that nobody notices before a follower asks for that record."""
    cluster = new_cluster(QUICK)
    fill(cluster)
    leader = cluster.nodes[cluster.leaders("t")[0]]
    follower = next(node for node in cluster if node is not leader)
    follower.kill()
    shutil.rmtree(follower.data / "t-0")
    damage(leader)
    follower.start()
    eventually(lambda: "is left to another leader" in leader.log, seconds_max=30)
    eventually(lambda: cluster.leaders("t").get(0, leader.node_id) != leader.node_id, seconds_max=30)
    cluster.await_in_sync("t")
    eventually(lambda: have_the_same(cluster), seconds_max=30)
    assert numbers(cluster) == list(range(COUNT))
