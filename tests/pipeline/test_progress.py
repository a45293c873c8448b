"""What Spark tells of a batch, and what becomes of it: a line, a group's position, metrics, a report."""

import json
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline import report
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.history import History
from tidemark.pipeline.metrics import Metrics
from tidemark.pipeline.positions import GroupPosition
from tidemark.pipeline.progress import key_of, line, read_progress, unread

TOLD = {
    "batchId": 3,
    "runId": "r",
    "timestamp": "2030-01-31T12:00:00.000Z",
    "numInputRows": 1200,
    "processedRowsPerSecond": 400.0,
    "durationMs": {"triggerExecution": 3000},
    "stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 1 << 20}],
    "sources": [{"endOffset": {"t": {"0": 10, "1": 20}}, "latestOffset": {"t": {"0": 10, "1": 20}}}],
    "observedMetrics": {"source:clicks": {"records": 1200, "malformed": 7}},
}
ENDS = {("t", 0): 15, ("t", 1): 20, ("other", 0): 1000}


def test_a_batch_is_read_and_shown() -> None:
    progress = read_progress("counts", TOLD, ends=ENDS)
    assert (progress.rows, progress.lag, progress.batch_seconds) == (1200, 5, 3.0)
    assert progress.positions == {("t", 0): 10, ("t", 1): 20}
    shown = line(progress)
    assert "counts  batch 3  1,200 rows  400 rows/s  lag 5  3.0 s  state 5 rows, 1.0 MB  7 malformed" in shown


class Told:
    """One of Spark's reports; making its JSON is what costs."""

    def __init__(self, batch: int) -> None:
        self.content = {**TOLD, "batchId": batch}
        self.asked = 0

    def json(self) -> str:
        self.asked += 1
        return json.dumps(self.content)


def test_of_all_that_spark_keeps_only_what_is_new_is_read() -> None:
    kept = [Told(batch) for batch in range(100)]
    query: Any = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: kept))
    assert [each["batchId"] for each in unread(query, None)] == list(range(100))
    assert [each["batchId"] for each in unread(query, key_of(kept[97].content))] == [98, 99]
    assert unread(query, key_of(kept[99].content)) == []
    assert [each.asked for each in kept] == [1] * 97 + [2, 2, 3]
    del kept[:98]  # Spark forgets the oldest
    assert [each["batchId"] for each in unread(query, key_of(kept[0].content))] == [99]


def test_a_large_backlog_is_told_with_the_time_that_it_takes() -> None:
    for behind, told in (
        (100_000, "about 4 min to go"),
        (20_000, "about 50 s to go"),
        (4_000_000, "about 2.8 h to go"),
    ):
        progress = read_progress("counts", TOLD, ends={("t", 0): 10 + behind})
        assert f"lag {behind:,}  3.0 s  {told}" in line(progress)
    assert "to go" not in line(read_progress("counts", TOLD, ends={("t", 0): 2000}))


def test_a_batch_with_a_row_for_every_offset_has_lost_nothing() -> None:
    """Records that were deleted may have been in the consumer's memory already."""
    source = {"startOffset": {"t": {"0": 4, "1": 10}}, "endOffset": {"t": {"0": 10, "1": 20}}}
    assert read_progress("x", {**TOLD, "numInputRows": 16, "sources": [source]}, ends={}).is_whole
    assert not read_progress("x", {**TOLD, "numInputRows": 15, "sources": [source]}, ends={}).is_whole


def test_of_two_sources_over_one_topic_the_slower_one_counts() -> None:
    """A self-join reads its topic twice; lag counted from the quicker half would be too small."""
    sources = [{"endOffset": {"t": {"0": 10}}}, {"endOffset": {"t": {"0": 4, "1": 8}}}]
    for each in (sources, sources[::-1]):
        progress = read_progress("x", {**TOLD, "sources": each}, ends=ENDS)
        assert (progress.positions, progress.lag) == ({("t", 0): 4, ("t", 1): 8}, 11 + 12)


def test_a_source_of_files_has_no_position() -> None:
    assert read_progress("x", {**TOLD, "sources": [{"endOffset": {"logOffset": 3}}]}, ends={}).positions == {}


def test_the_group_stands_where_the_slowest_sink_does() -> None:
    position = GroupPosition(ClusterAdmin("127.0.0.1:1", {}), "g", ["a", "b", "idle"])
    position.note("a", {("t", 0): 10, ("t", 1): 5})
    position.note("b", {("t", 0): 7})
    assert position.position() == {("t", 0): 7}


def test_metrics_are_served_for_prometheus() -> None:
    metrics = Metrics("shop")
    metrics.note(read_progress("counts", TOLD, ends=ENDS))
    metrics.note(read_progress("counts", TOLD, ends=ENDS))
    metrics.lag = {"counts": 5}
    server = metrics.serve(0)
    try:
        text = urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics").read().decode()
    finally:
        server.shutdown()
        server.server_close()
    assert 'tidemark_pipeline_rows_total{pipeline="shop",sink="counts"} 2400' in text
    assert 'tidemark_pipeline_lag_records{pipeline="shop",sink="counts"} 5' in text
    assert 'tidemark_pipeline_malformed_total{pipeline="shop",sink="counts",source="clicks"} 14' in text


def test_metrics_are_served_where_they_are_told_to_be_and_nowhere_else() -> None:
    server = Metrics("shop").serve(0, host="127.0.0.2")
    try:
        assert urllib.request.urlopen(f"http://127.0.0.2:{server.server_port}/metrics").status == 200
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics")
    finally:
        server.shutdown()
        server.server_close()


def test_a_port_that_is_taken_is_told() -> None:
    server = Metrics("one").serve(0)
    try:
        with pytest.raises(
            CommandFailed, match=f"metrics_port: {server.server_port} cannot be listened on at 127.0.0.1: address al"
        ):
            Metrics("two").serve(server.server_port)
    finally:
        server.shutdown()
        server.server_close()


def test_the_report_has_charts_and_escapes_names() -> None:
    history = History()
    for second in range(3):
        told = {**TOLD, "timestamp": f"2030-01-31T12:00:0{second}.000Z"}
        history.note(read_progress("<counts>", told, ends=ENDS))
    text = report.summary("shop", history, seconds=9.0, malformed=7, lag={"<counts>": 12})
    page = report.page("shop", history, summary_text=text)
    assert "3,600 rows in 3 batches" in text
    assert "lag 12" in text
    assert page.count("<svg") == 5
    assert "&lt;counts&gt;" in page
    assert "<counts>" not in page
    assert "No batch was finished." in report.page("shop", [], summary_text="")
