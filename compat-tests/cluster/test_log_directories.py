"""Nodes with two log directories each, one of which fails: it goes offline alone, and comes back with what it had."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cluster.workload import read_everything
from confluent_kafka import Producer
from harness.cluster import Cluster, ClusterNode
from harness.waiting import eventually

NewCluster = Callable[..., Cluster]
PARTITIONS = 6


def second(node: ClusterNode) -> Path:
    return node.directory / "second"


def give_two_directories(node: ClusterNode) -> None:
    node.settings["log.dirs"] = f"{node.data},{second(node)}"


def produce(cluster: Cluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    for number in numbers:
        producer.produce("t", b"1:%d " % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def in_directory(path: Path) -> set[int]:
    return {int(each.name.removeprefix("t-")) for each in path.glob("t-?")}


def led_by(cluster: Cluster, node: ClusterNode) -> set[int]:
    return {index for index, leader in cluster.leaders("t").items() if leader == node.node_id}


def test_a_directory_that_fails_goes_offline_alone_and_returns_with_what_it_had(new_cluster: NewCluster) -> None:
    cluster = new_cluster({"broker.session.timeout.ms": "9000"}, prepare=give_two_directories)
    cluster.create_topic("t", partitions=PARTITIONS, min_insync_replicas="2")
    produce(cluster, range(120))
    cluster.await_in_sync("t")
    node = next(each for each in cluster if led_by(cluster, each) & in_directory(second(each)))
    lost, kept = in_directory(second(node)), in_directory(node.data)
    assert lost | kept == set(range(PARTITIONS))
    led = led_by(cluster, node)

    second(node).rename(node.directory / "unplugged")
    began = time.monotonic()
    eventually(lambda: not led_by(cluster, node) & lost, seconds_max=20)
    print(f"others lead after {time.monotonic() - began:.2f} s")
    assert led_by(cluster, node) >= led & kept
    produce(cluster, range(120, 240))
    assert node.is_running

    node.kill()
    second(node).write_text("this is no directory")
    node.start()
    eventually(lambda: f"log directory {second(node)} is offline" in node.log, seconds_max=20)
    produce(cluster, range(240, 300))
    assert in_directory(node.data) == kept, "what is in the other directory is not begun anew here"

    node.kill()
    second(node).unlink()
    (node.directory / "unplugged").rename(second(node))
    node.start()
    cluster.await_in_sync("t")
    assert in_directory(second(node)) == lost
    found = read_everything(cluster.bootstrap, "t", partitions=PARTITIONS)
    assert sorted(value.number for each in found.values() for _, value in each) == list(range(300))
