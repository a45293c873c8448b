"""A follower that was cut off counts again as soon as the network is well: a second fault right after costs little.

This needs root, and is not collected otherwise: see conftest.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cluster.chaos import PARTITIONS, TOPIC
from cluster.history import History, check
from cluster.workload import Writer, read_everything
from harness.cluster import Cluster, ClusterNode
from harness.network import Network
from harness.waiting import eventually

CUT_SECONDS = 45.0
NOTICED_SECONDS_MAX = 10.0  # until a node counts again whose network is well again; it was 14 s with a dead link
SERVES_AGAIN_SECONDS_MAX = 6.0  # a session of 3 s, and an election
ACKNOWLEDGED_AGAIN = 20


def acknowledged_everywhere(history: History, *, since: float) -> bool:
    """Whether every partition has taken several records since then."""
    with history.lock:
        counts = Counter(place.partition for _, place, at in history.acknowledged if at > since)
    return len(counts) == PARTITIONS and min(counts.values()) >= ACKNOWLEDGED_AGAIN


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(3) as made:
        yield made


@pytest.fixture
def cluster(network: Network, tmp_path: Path) -> Iterator[Cluster]:
    def make(path: Path, settings: Mapping[str, str] | None, *, node_id: int) -> ClusterNode:
        return ClusterNode(path, settings, node_id=node_id, host=network.host(node_id), prefix=network.inside(node_id))

    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    cluster = Cluster(tmp_path, settings=settings, make=make)
    cluster.start()
    yield cluster
    cluster.close()


@pytest.mark.timeout(300)
def test_the_controller_may_die_as_soon_as_a_long_cut_has_healed(cluster: Cluster, network: Network) -> None:
    cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3, min_insync_replicas="2")
    cluster.await_in_sync(TOPIC)
    history = History()
    writer = Writer(0, cluster.bootstrap, TOPIC, partitions=PARTITIONS, history=history)
    controller = cluster.await_controller()
    alone, other = [node.node_id for node in cluster if node.node_id != controller]
    for away in (controller, other):
        network.cut(alone, away)
        network.cut(away, alone)
    time.sleep(CUT_SECONDS)  # that long is the fault, not a wait for something
    network.mend_all()
    # The two that are about to be the quorum need not have spoken to each other since: followers do not.
    eventually(lambda: not cluster.is_fenced(alone), seconds_max=NOTICED_SECONDS_MAX)
    killed_at = time.monotonic()
    next(node for node in cluster if node.node_id == controller).kill()
    eventually(lambda: cluster.controller() in (alone, other), seconds_max=60)
    elected_at = time.monotonic()
    eventually(lambda: acknowledged_everywhere(history, since=elected_at), seconds_max=120)
    writer.stop.set()
    writer.thread.join(120)
    report = check(history, read_everything(cluster.bootstrap, TOPIC, partitions=PARTITIONS))
    gap = report.longest_gap_in(killed_at, time.monotonic())
    print(f"{gap:.2f} s without an acknowledgement after the controller's end")
    assert report.is_clean, str(report)
    assert gap < SERVES_AGAIN_SECONDS_MAX
