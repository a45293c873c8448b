"""The topic sink on the driver: what every checkpoint of one pipeline has in common."""

from __future__ import annotations

from pathlib import Path

from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.sinks.topic import TopicBatches
from tidemark.pipeline.spec import TopicSink


def test_another_checkpoint_of_a_pipeline_has_the_same_transactional_ids(cluster: ClusterAdmin, tmp_path: Path) -> None:
    """By them it fences what the first one has open. With the query's id in them, both would write."""
    sink = TopicSink(name="out", view="orders", topic="copy", writers=2)
    ids = set()
    for query in ("first", "second"):
        batches = TopicBatches(sink, pipeline="shop", cluster=cluster, checkpoint=Checkpoint(str(tmp_path / query)))
        batches.query_id.set_result(query)
        ids.add(batches._writing(0).transactional_id(1))
    assert ids == {"shop.out.1"}
