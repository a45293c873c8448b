"""Partitions that move at a limited rate: with Kafka's own tool, and with ours."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource
from harness.cluster import Cluster
from harness.commands import tidemark
from harness.java import run_tool
from harness.waiting import eventually

NewCluster = Callable[..., Cluster]
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
MEGABYTES = 6
RATE = 1_000_000


def fill(cluster: Cluster) -> None:
    """On two of three brokers."""
    cluster.create_topic("moves", replicas=2, min_insync_replicas="1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    for _ in range(MEGABYTES * 10):
        producer.produce("moves", bytes(100_000))
        producer.poll(0)
    assert producer.flush(60) == 0


def target(cluster: Cluster) -> list[int]:
    """The third takes the place of one that follows."""
    leader = cluster.leaders("moves")[0]
    (newcomer,) = set(cluster.nodes) - cluster.in_sync("moves")[0]
    return [leader, newcomer]


def throttles(cluster: Cluster) -> dict[str, str]:
    """What is set on topic and brokers, by name."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, "moves")]
    resources += [ConfigResource(ConfigResource.Type.BROKER, str(node)) for node in cluster.nodes]
    found: dict[str, str] = {}
    for resource in resources:  # librdkafka asks about one broker at a time
        entries = cluster.admin().describe_configs([resource])[resource].result(20)
        found |= {name: e.value for name, e in entries.items() if "replication.throttled" in name and not e.is_default}
    return found


def produces_while_it_moves(cluster: Cluster) -> None:
    """Who is in sync is not held back."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    producer.produce("moves", b"meanwhile", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(5) == 0
    assert not failed


def test_kafkas_tool_moves_partitions_under_a_throttle_and_takes_it_away(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    cluster = new_cluster()
    fill(cluster)
    wanted = target(cluster)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moves", "partition": 0, "replicas": wanted}]}))
    arguments = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    done = run_tool(TOOL, *arguments, "--execute", "--throttle", str(RATE)).checked()
    assert "Successfully started partition reassignment" in done.stdout
    assert cluster.in_sync("moves")[0] != set(wanted), "it was not limited at all"
    assert throttles(cluster)["leader.replication.throttled.rate"] == str(RATE)
    produces_while_it_moves(cluster)
    eventually(lambda: cluster.in_sync("moves")[0] == set(wanted), seconds_max=60)
    verified = run_tool(TOOL, *arguments, "--verify").checked()
    assert "Reassignment of partition moves-0 is completed" in verified.stdout
    assert not throttles(cluster)


def test_our_own_command_moves_them_under_a_throttle_and_takes_it_away(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    fill(cluster)
    wanted = target(cluster)
    began = time.monotonic()
    told = tidemark(
        "cluster", "reassign", "-b", cluster.bootstrap, "--topic", "moves", "--to", ",".join(map(str, wanted)),
        "--throttle", str(RATE),
    )  # fmt: skip
    assert "1 partition(s) moved" in told
    assert time.monotonic() - began > MEGABYTES / 2, "it was not limited at all"
    assert cluster.in_sync("moves")[0] == set(wanted)
    assert not throttles(cluster)
