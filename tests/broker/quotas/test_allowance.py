from __future__ import annotations

from random import Random

import pytest

from tidemark.broker.quotas import allowance
from tidemark.broker.quotas.allowance import Allowance


class Clock:
    now = 100.0

    def __call__(self) -> float:
        self.readings += 1
        return self.now

    readings = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(allowance, "monotonic", clock)
    return clock


def test_small_amounts_are_taken_together(clock: Clock) -> None:
    shared = Allowance(1_000_000, burst_seconds=10, first_seconds=1)
    assert [shared.use(100) for _ in range(1000)] == [0.0] * 1000
    assert clock.readings < 12
    assert shared.use(1_900_000) == pytest.approx(1.0), "nothing of them is forgotten"


def test_while_in_debt_everybody_is_told(clock: Clock) -> None:
    shared = Allowance(1000, burst_seconds=10, first_seconds=1)
    assert shared.use(3000) == pytest.approx(2)
    assert shared.use(1) == pytest.approx(2.001)
    clock.now += 1
    assert shared.use(0) == pytest.approx(1.001)
    clock.now += 1.5
    assert shared.use(0) == 0


def test_nobody_waits_longer_than_the_longest_wait_and_the_debt_stays(clock: Clock) -> None:
    shared = Allowance(0.1, burst_seconds=10, first_seconds=0.5, wait_seconds_max=1.0)
    shared.unsettled += 0.35
    assert shared.use(0.0) == 1.0
    clock.now += 1
    assert shared.use(0.0) == 1.0
    clock.now += 2
    assert shared.use(0.0) == 0


def test_a_new_rate_counts_at_once(clock: Clock) -> None:
    shared = Allowance(1_000_000, burst_seconds=10, first_seconds=1)
    shared.use(1)
    shared.set_rate(1000, burst_seconds=1)
    assert shared.use(2000) == pytest.approx(1.0)


@pytest.mark.parametrize("size", [1, 150, 16_000, 2_000_000])
def test_one_that_waits_as_it_is_told_gets_its_rate(clock: Clock, size: int) -> None:
    rate, used, random = 500_000, 0, Random(size)
    shared, began = Allowance(rate, burst_seconds=10, first_seconds=0.5), clock.now
    for _ in range(20_000):
        each = random.randint(1, size)
        used += each
        clock.now += shared.use(each) + each / (rate * 50)  # it could send fifty times as fast
    seconds = clock.now - began
    assert used <= rate * (seconds + 0.5) + 2 * size + 0.01 * rate
    assert seconds < 1 or used >= rate * seconds * 0.99
