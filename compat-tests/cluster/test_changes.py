"""Nodes that join and leave, and clocks that are set, while clients write and read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.chaos import SERVES_AGAIN_SECONDS_MAX, TOPIC, run, with_clocks
from cluster.nemesis import JumpClock, Newcomer
from harness.broker_log import check_log
from harness.cluster import Cluster

NewCluster = Callable[..., Cluster]


@pytest.fixture
def cluster_with_clocks(tmp_path: Path) -> Iterator[tuple[Cluster, JumpClock]]:
    cluster = Cluster(tmp_path)
    jump = JumpClock(with_clocks(cluster, tmp_path))
    cluster.start()
    yield cluster, jump
    cluster.close()
    for node in cluster:
        check_log(node)


def test_a_node_joins_takes_replicas_and_a_vote_and_leaves_again(new_cluster: NewCluster) -> None:
    outcome = run(new_cluster(), [Newcomer(TOPIC)], seconds=1, seed=1)
    assert outcome.report.is_clean, str(outcome)
    assert outcome.report.longest_gap < SERVES_AGAIN_SECONDS_MAX, str(outcome)


def test_clocks_may_jump(cluster_with_clocks: tuple[Cluster, JumpClock]) -> None:
    """The monotonic clocks decide: nobody is fenced, no lease is lost, no replica falls out of sync."""
    cluster, jump = cluster_with_clocks
    outcome = run(cluster, [jump], seconds=1, seed=1)
    assert outcome.report.is_clean, str(outcome)
    assert outcome.report.longest_gap < SERVES_AGAIN_SECONDS_MAX, str(outcome)
    for node in cluster:
        assert "is fenced" not in node.log
        assert "in sync are now" not in node.log.split("Tidemark is ready")[0], "an in-sync set has changed"
