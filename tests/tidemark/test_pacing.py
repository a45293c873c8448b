from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.pacing import AsyncPace, Pace, TokenBucket


@given(
    events=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 300)), max_size=60),
    rate=st.floats(1, 100),
    burst=st.floats(0.5, 10),
    first=st.floats(0, 10),
)
def test_who_waits_as_told_never_gets_more_than_rate_and_burst(
    events: list[tuple[float, float]], rate: float, burst: float, first: float
) -> None:
    bucket, now, began = TokenBucket(rate, burst_seconds=burst, first_seconds=first), 100.0, 100.0
    taken = last = 0.0
    for idle, amount in events:
        now += idle
        assert taken <= rate * (now - began + max(burst, first)) + 1e-6
        now += bucket.take(amount, now)
        taken, last = taken + amount, amount
    assert taken - last <= rate * (now - began + max(burst, first)) + 1e-6


@pytest.mark.parametrize("size", [100, 20_000, 1_000_000])
def test_a_saturating_client_gets_its_rate_from_the_first_seconds_on(size: int) -> None:
    bucket, now, taken = TokenBucket(5e6, burst_seconds=10, first_seconds=0.5), 50.0, 0
    while now < 70.0:
        now += size / 200e6  # the client could be forty times as fast
        wait = bucket.take(size, now)
        taken += size
        now += round(wait * 1000) / 1000  # milliseconds are told
    assert taken == pytest.approx(5e6 * 20, rel=0.05)


def test_a_debt_stays_when_the_rate_changes() -> None:
    bucket = TokenBucket(100, first_seconds=0)
    assert bucket.take(300, 1.0) == 3.0
    bucket.set_rate(10)
    assert bucket.wait(1.0) == 30.0


def test_idle_time_is_saved_up_to_the_burst() -> None:
    bucket = TokenBucket(10, burst_seconds=3, first_seconds=1)
    assert bucket.take(10, 0.0) == 0
    assert bucket.take(1, 0.0) > 0
    assert bucket.take(29.9, 1000.0) == 0
    assert bucket.take(1, 1000.0) > 0


def test_a_pace_sleeps_as_long_as_it_must() -> None:
    now, random, done = [0.0], Random(1), 0
    pace = Pace(1000, clock=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    while now[0] < 100:
        amount = random.randrange(1, 500)
        pace(amount)
        done += amount
    assert done == pytest.approx(100_000, rel=0.01)


async def test_a_coroutine_is_paced_and_others_run() -> None:
    loop = asyncio.get_running_loop()
    pace, began, others = AsyncPace(10_000, clock=loop.time), loop.time(), 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(20):
        await pace(100)
    task.cancel()
    assert loop.time() - began >= 0.17
    assert others > 10
