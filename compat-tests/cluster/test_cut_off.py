"""Nodes that cannot talk to each other, and a disk that is full: the majority serves on, and nothing is lost.

Where these need root they are not collected otherwise: see conftest.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cluster.chaos import SERVES_AGAIN_SECONDS_MAX, TOPIC, disks_of_their_own, run
from cluster.nemesis import CutOff, CutOneWay, CutOtherWay, CutPair
from cluster.nemesis_disk import FullDisk
from harness.broker_log import check_log
from harness.cluster import Cluster, ClusterNode
from harness.network import Network

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(3) as made:
        yield made


@pytest.fixture
def cluster_on_it(network: Network, tmp_path: Path) -> Iterator[Cluster]:
    def make(path: Path, settings: Mapping[str, str] | None, *, node_id: int) -> ClusterNode:
        return ClusterNode(path, settings, node_id=node_id, host=network.host(node_id), prefix=network.inside(node_id))

    cluster = Cluster(tmp_path, settings=SETTINGS, make=make)
    cluster.start()
    yield cluster
    cluster.close()
    for node in cluster:
        check_log(node)


@pytest.fixture
def cluster_on_small_disks(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, settings=SETTINGS)
    with disks_of_their_own(cluster, megabytes=48):
        cluster.start()
        yield cluster
        cluster.close()


def test_cuts_in_the_network_lose_nothing_and_the_majority_serves_on(cluster_on_it: Cluster, network: Network) -> None:
    faults = [cut(network, (2.0, 6.0)) for cut in (CutOff, CutPair, CutOneWay, CutOtherWay)]
    outcome = run(cluster_on_it, faults, seconds=20, seed=3)
    assert outcome.report.is_clean, str(outcome)
    assert outcome.report.longest_gap < SERVES_AGAIN_SECONDS_MAX, str(outcome)
    print(outcome)


def test_a_full_disk_on_one_node_loses_nothing_and_others_serve_on(cluster_on_small_disks: Cluster) -> None:
    outcome = run(cluster_on_small_disks, [FullDisk(TOPIC)], seconds=12, seed=1)
    assert outcome.report.is_clean, str(outcome)
    assert outcome.report.longest_gap < SERVES_AGAIN_SECONDS_MAX, str(outcome)
    print(outcome)
