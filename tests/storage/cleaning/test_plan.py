"""What may be cleaned, and when it is due: the lag settings, the dirty ratio, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tidemark.storage import Log, LogConfig, is_due, measure

T0 = 1_700_000_000_000
HOUR = 3_600_000
CONFIG = LogConfig(segment_bytes=400, compact=True, delete=False, min_cleanable_dirty_ratio=0.5)


@pytest.fixture
def hourly(open_log: Callable[..., Log], make_batch: Any, append: Any) -> Log:
    """A segment for each of ten hours; the last is written to."""
    log = open_log(config=CONFIG)
    for hour in range(10):
        if hour:
            log.roll()
        append(log, make_batch(2, timestamp=T0 + hour * HOUR))
    log.flush()
    return log


def dirtiness(log: Log, *, now_ms: int, cleaned_up_to: int = 0, **config: Any) -> Any:
    log.config = replace(CONFIG, **config)
    return measure(log, cleaned_up_to=cleaned_up_to, high_watermark=log.end_offset, now_ms=now_ms)


def test_everything_but_the_active_segment_may_be_cleaned(hourly: Log) -> None:
    assert dirtiness(hourly, now_ms=T0).end_offset == 18


def test_records_younger_than_the_minimum_lag_are_left_alone(hourly: Log) -> None:
    now_ms = T0 + 9 * HOUR
    lag = {"min_compaction_lag_ms": 4 * HOUR}
    assert dirtiness(hourly, now_ms=now_ms, **lag).end_offset == 2 * 5  # hours 0 to 4; 5 ends a millisecond too late
    assert dirtiness(hourly, now_ms=now_ms + 20 * HOUR, **lag).end_offset == 18
    young = dirtiness(hourly, now_ms=T0, **lag)
    assert (young.end_offset, young.dirty_bytes) == (0, 0)
    assert not is_due(hourly, young)


def test_what_has_waited_for_the_maximum_lag_is_due_however_little_it_is(hourly: Log) -> None:
    lag = {"max_compaction_lag_ms": 3 * HOUR, "min_cleanable_dirty_ratio": 1.0}
    dirty = dirtiness(hourly, now_ms=T0 + 20 * HOUR, cleaned_up_to=16, **lag)
    assert dirty.ratio < 0.2
    assert is_due(hourly, dirty)
    early = dirtiness(hourly, now_ms=T0 + 9 * HOUR, cleaned_up_to=16, **lag)
    assert not is_due(hourly, early)


def test_with_a_maximum_lag_the_active_segment_is_ended_in_time() -> None:
    config = LogConfig(compact=True, max_compaction_lag_ms=HOUR)
    assert config.roll_ms == HOUR
    assert replace(config, compact=False).roll_ms == config.segment_ms


def test_the_dirty_ratio_decides(hourly: Log) -> None:
    assert is_due(hourly, dirtiness(hourly, now_ms=T0, cleaned_up_to=6))
    assert not is_due(hourly, dirtiness(hourly, now_ms=T0, cleaned_up_to=12))
    assert not is_due(hourly, dirtiness(hourly, now_ms=T0, cleaned_up_to=18))
