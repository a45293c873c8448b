"""Two of three voters are gone, disks and all: the third becomes a quorum of one, and a cluster again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from cluster.workload import read_everything
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource
from harness.cluster import Cluster
from harness.commands import tidemark
from harness.waiting import eventually

NewCluster = Callable[..., Cluster]
QUICK = {"broker.session.timeout.ms": "3000"}


def send(cluster: Cluster, first: int, count: int) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    for number in range(first, first + count):
        producer.produce(
            "kept", b"1:%d " % number, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(30) == 0
    assert not failed


def setting(cluster: Cluster, name: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    found = cluster.admin().describe_configs([resource])[resource].result(20)
    return str(found[name].value)


def test_a_survivor_keeps_topics_settings_and_records_and_others_join_it(new_cluster: NewCluster) -> None:
    cluster = new_cluster(QUICK)
    cluster.create_topic("kept", min_insync_replicas="2", retention_ms="987654321")
    send(cluster, 0, 20)
    cluster.await_in_sync("kept")
    topic_id = cluster.topic_id("kept")
    survivor, *lost = cluster
    for node in lost:
        node.kill()
        cluster.remove_node(node)
    survivor.stop()
    cluster.forget_admin()

    command = survivor.command()
    settings = command[command.index("tidemark.broker") + 1 :]
    looked = tidemark("recover-quorum", *settings)
    assert "1 partition(s); this node holds 1, and 1 of them" in looked
    assert "Nothing is changed" in looked
    assert "decides alone" in tidemark("recover-quorum", *settings, "--yes")
    survivor.start()

    assert cluster.topic_id("kept") == topic_id
    assert setting(cluster, "retention.ms") == "987654321"
    eventually(lambda: cluster.leaders("kept") == {0: survivor.node_id}, seconds_max=30)
    assert len(read_everything(cluster.bootstrap, "kept", partitions=1)[0]) == 20

    new = [cluster.add_node(), cluster.add_node()]
    known = ("-b", cluster.bootstrap)
    for node in new:
        tidemark("cluster", "give-vote", *known, "--broker", str(node.node_id))
    everyone = ",".join(str(node.node_id) for node in cluster)
    tidemark("cluster", "reassign", *known, "--topic", "kept", "--to", everyone)
    for node in lost:
        tidemark("cluster", "decommission", *known, "--broker", str(node.node_id))
    cluster.await_in_sync("kept")
    send(cluster, 20, 20)
    survivor.kill()
    eventually(lambda: cluster.leaders("kept").get(0) in {node.node_id for node in new}, seconds_max=20)
    found = [value.number for _, value in read_everything(cluster.bootstrap, "kept", partitions=1)[0]]
    assert found == list(range(40))
    survivor.start()


def test_a_running_node_is_left_alone(new_cluster: NewCluster) -> None:
    (node,) = new_cluster(nodes=1)
    words = [sys.executable, "-m", "tidemark.broker.recover_quorum", "--set", f"log.dirs={node.data}", "--yes"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "locked" in done.stderr
