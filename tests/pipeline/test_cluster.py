"""A cluster whose brokers hear of a new topic a moment after it was made, as Apache Kafka's do."""

from __future__ import annotations

import pytest

from tidemark.pipeline.cluster import ClusterAdmin


@pytest.mark.parametrize("stale", [[], [0]], ids=["not shown yet", "shown with too few partitions"])
def test_a_topic_that_a_broker_has_not_heard_of_yet_is_waited_for(
    cluster: ClusterAdmin, monkeypatch: pytest.MonkeyPatch, stale: list[int]
) -> None:
    """The sink's record of batches is made and counted at once; what is not shown yet must not end the pipeline."""
    name = f"slowly-shown-{len(stale)}"
    real, late = cluster.topics, [stale, stale, stale]
    monkeypatch.setattr(cluster, "topics", lambda: {**real(), name: late.pop()} if late else real())
    cluster.create_topic(name, partitions=2)
    assert cluster.grow_topic(name, partitions=2) == 2
    late.append(stale)
    assert cluster.grow_topic(name, partitions=3) == 3
    assert cluster.grow_topic(name, partitions=1) == 3
