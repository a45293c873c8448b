"""A run of any length: bounded memory, exact totals, and the newest batch is always known."""

from tidemark.pipeline.history import History
from tidemark.pipeline.progress import Progress


def batch(number: int, sink: str = "s") -> Progress:
    return Progress(
        sink=sink, batch=number, at=float(number), rows=10, rows_per_second=1.0, batch_seconds=0.5, lag=0, state_rows=0,
        state_bytes=0,
    )  # fmt: skip


def test_memory_is_bounded_and_totals_are_exact() -> None:
    history = History(batches_max=100)
    for number in range(25_000):
        history.note(batch(number))
    assert len(history) < 100
    assert history.newest["s"].batch == 24_999
    assert (history.totals["s"].rows, history.totals["s"].batches) == (250_000, 25_000)
    kept = [each.batch for each in history]
    assert kept == sorted(kept)
    assert kept[0] < 1000  # the chart still begins where the run did
    assert kept[-1] > 24_000


def test_sinks_that_take_turns_all_stay_in_the_charts() -> None:
    history = History(batches_max=100)
    for number in range(1000):
        for sink in ("a", "b"):
            history.note(batch(number, sink))
    kept = [each.sink for each in history]
    assert abs(kept.count("a") - kept.count("b")) <= 1
