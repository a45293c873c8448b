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


def test_a_run_that_never_wrote_does_not_call_an_older_runs_batch_unwritten(
    cluster: ClusterAdmin, tmp_path: Path
) -> None:
    """Stopped in its first seconds, it would take the batch back, of which the older run may have written a part; then
    other records came under the same number, and were refused."""
    offsets = tmp_path / "sinks" / "out" / "offsets"
    offsets.mkdir(parents=True)
    for number in range(2):
        (offsets / str(number)).write_text('v1\n{}\n{"orders":{"0":5}}')
    sink = TopicSink(name="out", view="orders", topic="copy")
    batches = TopicBatches(sink, pipeline="shop", cluster=cluster, checkpoint=Checkpoint(str(tmp_path)))
    batches.query_id.set_result("query")
    (offsets / "2").write_text('v1\n{}\n{"orders":{"0":9}}')  # planned by this run: no older one knows of it
    assert batches.last_written() == 1
