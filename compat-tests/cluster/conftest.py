"""Clusters of three Tidemark processes, one per test that breaks it. There is no control here: faults are ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from harness import network
from harness.broker_log import check_log
from harness.cluster import Cluster, ClusterNode

# Namespaces and mounts need root; where there is none, `pytest` says so in its head and leaves these out.
collect_ignore = [] if network.available() else ["test_cut_off.py", "test_healed_cut.py"]


def pytest_report_header() -> str | None:
    return f"compat-tests/cluster without {collect_ignore[0]}: it needs Linux and root" if collect_ignore else None


MakeCluster = Callable[..., Cluster]


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    made: list[Cluster] = []

    def make(
        settings: Mapping[str, str] | None = None,
        *,
        nodes: int = 3,
        racks: bool = False,
        prepare: Callable[[ClusterNode], None] | None = None,
    ) -> Cluster:
        """`prepare` is called with each node before it starts."""
        cluster = Cluster(tmp_path / f"cluster-{len(made)}", nodes=nodes, settings=settings, racks=racks)
        made.append(cluster)
        for node in cluster if prepare is not None else ():
            prepare(node)
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.close()
    for cluster in made:
        for node in cluster:
            check_log(node)
