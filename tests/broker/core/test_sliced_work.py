"""Long work on the loop: nobody else waits for more than a slice of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tidemark.broker.core.sliced_work import INTERRUPTED, SLICE_SECONDS, Job, SlicedWork, at_once, finished, in_slices


class Clock:
    """Each look at it takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def counting(steps: int, taken: list[str], name: str = "job") -> Job[str]:
    for _ in range(steps):
        taken.append(name)
        yield
    return f"{name} is done"


@pytest.fixture
def work() -> SlicedWork:
    return SlicedWork(Clock())


def test_a_short_job_is_done_at_once(work: SlicedWork) -> None:
    assert work.start(counting(2, [])) == "job is done"
    assert not work.is_busy


async def test_a_long_job_is_interrupted_and_goes_on_turn_by_turn(work: SlicedWork) -> None:
    taken: list[str] = []
    job = counting(20, taken)
    assert work.start(job) is INTERRUPTED
    first = len(taken)
    assert first <= SLICE_SECONDS * 1000 + 1
    deferred = work.add(job)
    await asyncio.sleep(0)
    assert first < len(taken) <= 2 * first, "one slice in one turn"
    while not deferred.done:
        await asyncio.sleep(0)
    assert len(taken) == 20


async def test_only_one_of_many_jobs_has_a_slice_in_one_turn(work: SlicedWork) -> None:
    taken: list[str] = []
    for name in "abc":
        work.add(counting(30, taken, name))
    await asyncio.sleep(0)
    assert set(taken) == {"a"}
    await asyncio.sleep(0)
    assert set(taken) == {"a", "b"}
    while work.is_busy:
        await asyncio.sleep(0)
    assert {name: taken.count(name) for name in "abc"} == dict.fromkeys("abc", 30)


async def test_a_job_that_nobody_wants_any_more_is_given_up(work: SlicedWork) -> None:
    taken: list[str] = []
    deferred = work.add(counting(30, taken), lambda: len(taken) < 5)
    while work.is_busy:
        await asyncio.sleep(0)
    assert not deferred.done
    assert len(taken) < 30


async def test_a_job_that_fails_says_so_and_the_others_go_on(work: SlicedWork) -> None:
    def failing() -> Job[None]:
        yield
        raise ValueError("no")

    told: list[Exception] = []
    work.add(failing()).then(lambda _: None, told.append)
    other = work.add(counting(3, []))
    while work.is_busy:
        await asyncio.sleep(0)
    assert [str(error) for error in told] == ["no"]
    assert other.done


async def test_jobs_may_be_awaited_or_run_to_their_end() -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)

    assert await finished(in_slices(str, numbers())) == ["0", "1", "2", "3", "4"]
    assert at_once(in_slices(str, numbers())) == ["0", "1", "2", "3", "4"]
    assert await SlicedWork().finish(counting(3, [])) == "job is done"
    assert await SlicedWork(Clock()).finish(counting(30, [])) == "job is done"


async def test_coroutines_that_share_their_work_take_one_slice_of_a_turn_together() -> None:
    now = 0.0
    work = SlicedWork(lambda: now)

    def job(number: int) -> Job[int]:
        nonlocal now
        for _ in range(4):
            now += 0.001
            yield
        return number

    tasks = [asyncio.create_task(work.finish_in_turn(job(number))) for number in range(50)]
    longest, last = 0.0, now
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        longest, last = max(longest, now - last), now
    assert [task.result() for task in tasks] == list(range(50))
    assert longest <= 2 * 0.005 + 0.002, "a slice for those who begin, and one for those who wait"
