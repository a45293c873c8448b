"""Clusters of three Tidemark processes, one per test that breaks it. There is no control here: faults are ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import check_log
from harness.cluster import Cluster

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    made: list[Cluster] = []

    def make(settings: Mapping[str, str] | None = None, *, nodes: int = 3) -> Cluster:
        cluster = Cluster(tmp_path / f"cluster-{len(made)}", nodes=nodes, settings=settings)
        made.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.close()
    for cluster in made:
        for node in cluster:
            check_log(node)
