"""Batches that fit into their transactions."""

from tidemark.pipeline.inputs import BatchLimit
from tidemark.pipeline.sinks.transaction_time import (
    measured,
    records_after_timeout,
    records_per_batch,
    timeout_of_attempt,
)


def test_a_batch_takes_a_third_of_its_transactions_time() -> None:
    assert records_per_batch(rows_per_second=20_000, rate_max=None, timeout_s=60) == 400_000


def test_a_rate_that_is_asked_for_bounds_the_batch() -> None:
    assert records_per_batch(rows_per_second=20_000, rate_max=100, timeout_s=60) == 2_000


def test_before_anything_was_measured_there_is_a_limit_too() -> None:
    assert 10_000 <= records_per_batch(rows_per_second=None, rate_max=None, timeout_s=60) <= 500_000


def test_small_batches_measure_nothing() -> None:
    assert measured(rows=10, seconds=2.0) is None
    assert measured(rows=5_000, seconds=0.2) is None
    assert measured(rows=30_000, seconds=10.0) == 3_000


def test_every_attempt_has_more_time_up_to_what_the_broker_allows() -> None:
    times = [timeout_of_attempt(60.0, attempt=attempt, broker_max_s=900.0) for attempt in range(4)]
    assert times == [60.0, 240.0, 900.0, 900.0]
    assert timeout_of_attempt(60.0, attempt=0, broker_max_s=30.0) == 30.0


def test_a_batch_that_is_planned_anew_fits() -> None:
    assert records_after_timeout(rows=9_000, seconds=900.0, broker_max_s=900.0) == 3_000


def test_what_the_file_says_wins_over_the_usual_limit_but_not_over_a_forced_one() -> None:
    said = {"maxOffsetsPerTrigger": "500"}
    assert BatchLimit(usual=100).applied(said) == said
    assert BatchLimit(usual=100).applied({}) == {"maxOffsetsPerTrigger": "100"}
    assert BatchLimit(usual=100, forced=50).applied(said) == {"maxOffsetsPerTrigger": "50"}
    assert BatchLimit().applied({}) == {}
