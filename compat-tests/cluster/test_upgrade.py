"""A cluster of an earlier build is upgraded under load, node by node, and back, until its level is raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster.chaos import SERVES_AGAIN_SECONDS_MAX
from cluster.history import History, check
from cluster.workload import Reader, Writer, read_everything
from harness.cluster import Cluster, ClusterNode
from harness.earlier_build import EarlierBuild
from harness.errors import Error
from harness.waiting import eventually
from harness.wire import Wire

TOPIC = "upgraded"
PARTITIONS = 3
LEVEL = "tidemark.metadata.version"
NEWEST = 3
METADATA_TOPIC = "__cluster_metadata"
UPGRADE, UNSAFE_DOWNGRADE = 1, 3

NewCluster = Callable[..., Cluster]


@pytest.fixture
def earlier(tmp_path: Path) -> EarlierBuild:
    return EarlierBuild(tmp_path / "earlier")


@contextmanager
def under_load(cluster: Cluster) -> Iterator[Callable[[], int]]:
    """Yields a count of what is acknowledged so far. At the end: nothing lost, and no long silence."""
    history = History()
    bootstrap = cluster.bootstrap
    writer = Writer(0, bootstrap, TOPIC, partitions=PARTITIONS, history=history)
    reader = Reader(0, bootstrap, TOPIC, partitions=PARTITIONS, history=history)
    try:
        yield lambda: len(history.acknowledged)
    finally:
        writer.stop.set()
        writer.thread.join(120)
        final = read_everything(bootstrap, TOPIC, partitions=PARTITIONS)
        reader.finish(sum(map(len, final.values())))
    report = check(history, final)
    print(report)
    assert report.is_clean, str(report)
    assert report.longest_gap < SERVES_AGAIN_SECONDS_MAX, str(report)


def roll(
    cluster: Cluster,
    install: Callable[[ClusterNode], None],
    acknowledged: Callable[[], int],
    nodes: Iterable[ClusterNode] | None = None,
) -> None:
    """One node after the other. Writes go on with it before the next one stops."""
    for node in cluster if nodes is None else nodes:
        node.stop()
        install(node)
        node.start()
        cluster.await_in_sync(TOPIC)
        before = acknowledged()
        eventually(lambda before=before: acknowledged() > before + 10 * PARTITIONS, what="writes go on")


def ask(cluster: Cluster, name: str, version: int, **fields: Any) -> Any:
    node = cluster.nodes[cluster.await_controller()]
    with Wire(node.host, node.port) as wire:
        return wire.call(name, version, **fields)


def level(cluster: Cluster) -> int:
    answer = ask(cluster, "ApiVersions", 4, client_software_name="test", client_software_version="1")
    return next((each.max_version_level for each in answer.finalized_features if each.name == LEVEL), 0)


def set_level(cluster: Cluster, wanted: int, *, upgrade_type: int = UPGRADE) -> int:
    change = {"feature": LEVEL, "max_version_level": wanted, "upgrade_type": upgrade_type}
    answer = ask(cluster, "UpdateFeatures", 1, timeout_ms=10_000, feature_updates=[change], validate_only=False)
    return int(answer.error_code)


def voters_with_directory_ids(cluster: Cluster) -> int:
    wanted = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
    answer = ask(cluster, "DescribeQuorum", 2, topics=wanted)
    voters = answer.topics[0].partitions[0].current_voters
    return sum(each.replica_directory_id is not None for each in voters)  # a zero id is read as none


def test_nodes_are_upgraded_and_downgraded_one_by_one_until_the_level_is_raised(
    new_cluster: NewCluster, earlier: EarlierBuild
) -> None:
    cluster = new_cluster(prepare=earlier.install)
    cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    with under_load(cluster) as acknowledged:
        roll(cluster, earlier.replace, acknowledged)
        assert level(cluster) == 1
        assert voters_with_directory_ids(cluster) == 0, "the earlier build could not read them"

        roll(cluster, earlier.install, acknowledged)  # the way back is open
        *first, last = cluster
        roll(cluster, earlier.replace, acknowledged, first)
        assert set_level(cluster, 2) == Error.INVALID_UPDATE_VERSION, "one broker could not read what would be written"

        roll(cluster, earlier.replace, acknowledged, [last])
        assert level(cluster) == 1
        assert set_level(cluster, NEWEST) == 0
        assert level(cluster) == NEWEST
        eventually(lambda: voters_with_directory_ids(cluster) == 3, seconds_max=30)
        assert set_level(cluster, 1, upgrade_type=UNSAFE_DOWNGRADE) == Error.INVALID_UPDATE_VERSION
        last.restart(clean=True)
        cluster.await_in_sync(TOPIC)


def test_a_node_of_an_earlier_build_is_not_let_into_a_cluster_of_a_newer_level(
    new_cluster: NewCluster, earlier: EarlierBuild
) -> None:
    cluster = new_cluster()
    cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    assert level(cluster) == NEWEST
    node = next(iter(cluster))
    node.stop()
    earlier.install(node)
    node.begin()
    with under_load(cluster) as acknowledged:
        eventually(lambda: acknowledged() > 100)
        assert cluster.is_fenced(node.node_id)
    node.kill()
    node.log_path.unlink()  # it may complain as it likes: it cannot know better
    earlier.replace(node)
    node.start()
    cluster.await_in_sync(TOPIC)
