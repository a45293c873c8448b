"""200 connections that send without a pause: no broker loses its lease or is fenced, no replica falls out of sync, no
leader changes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.batches import batch_of
from harness.cluster import Cluster
from harness.requests import metadata, produce
from harness.wire import Wire

NewCluster = Callable[..., Cluster]

CONNECTIONS = 200
SECONDS = 8
PARTITIONS = 12


def state(cluster: Cluster) -> Any:
    node = next(iter(cluster))
    with Wire(node.host, node.port) as wire:
        [topic] = metadata(wire, "busy").topics
    return [
        (each.partition_index, each.leader_id, each.leader_epoch, sorted(each.isr_nodes)) for each in topic.partitions
    ]


def test_a_flood_of_clients_costs_no_lease_no_leader_and_no_replica(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    cluster.create_topic("busy", partitions=PARTITIONS)
    for number in range(5):  # so that a question for everything has a long answer
        cluster.create_topic(f"more-{number}", partitions=30)
    cluster.await_in_sync("busy")
    before, controller = state(cluster), cluster.await_controller()
    ports = [str(node.port) for node in cluster]
    script = Path(__file__).with_name("flood.py")
    command = [sys.executable, str(script), str(SECONDS), str(CONNECTIONS), "busy", str(PARTITIONS), *ports]
    wires = {node.node_id: Wire(node.host, node.port) for node in cluster}
    leaders = cluster.leaders("busy")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
        assert flood.stdout is not None
        assert flood.stdout.readline() == "flooding\n"
        served, until = 0, time.monotonic() + SECONDS
        while time.monotonic() < until:
            for partition, leader in leaders.items():  # a broker that has lost its lease for a moment refuses it
                answer = produce(wires[leader], "busy", batch_of(b"x"), partition=partition)
                assert answer.error_code == 0
                served += 1
        assert served >= PARTITIONS
        assert int(flood.stdout.readline()) > 0
        assert flood.wait(60) == 0
    for wire in wires.values():
        wire.close()
    assert state(cluster) == before
    assert cluster.await_controller() == controller
    for node in cluster:
        assert " is fenced" not in node.log
        assert "without a lease" not in node.log
