"""The order of examinations: clients take turns, and none has all threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tidemark.broker.replication.examiners import Examiners


class Job:
    """An examination that takes until it is released."""

    def __init__(self, begun: list[str], name: str) -> None:
        self.is_done = False
        self.released = threading.Event()
        self._begun = begun
        self._name = name

    def run(self, pause: Callable[[], None]) -> None:
        self._begun.append(self._name)
        assert self.released.wait(20)


@pytest.fixture
async def examiners() -> AsyncIterator[Examiners]:
    made = Examiners(threads=2)
    yield made
    made.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_clients_take_turns_and_none_has_two_threads(examiners: Examiners) -> None:
    begun: list[str] = []
    done: list[str] = []
    jobs: dict[str, Any] = {}
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        jobs[name] = Job(begun, name)
        examiners.examine(jobs[name], client=name[0], done=lambda name=name: done.append(name))  # type: ignore[misc]
    await until(lambda: len(begun) == 2)
    assert sorted(begun) == ["a1", "b1"]
    for released, next_one in (("a1", "a2"), ("a2", "c1"), ("b1", "b2"), ("c1", "a3")):
        jobs[released].released.set()
        await until(lambda next_one=next_one: begun[-1] == next_one)  # type: ignore[misc]
    for job in jobs.values():
        job.released.set()
    await until(lambda: len(done) == 6)
    assert all(job.is_done for job in jobs.values())


async def test_one_whose_outcome_nobody_can_use_does_not_stop_the_next(examiners: Examiners) -> None:
    loop, complaints, done = asyncio.get_running_loop(), [], []
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    first, second = Job([], "first"), Job([], "second")
    for job in (first, second):
        job.released.set()

    def fails() -> None:
        raise RuntimeError

    examiners.examine(first, client="a", done=fails)  # type: ignore[arg-type]
    examiners.examine(second, client="a", done=lambda: done.append(1))  # type: ignore[arg-type]
    await until(lambda: bool(done))
    assert len(complaints) == 1


async def test_nothing_is_reported_after_the_end(examiners: Examiners) -> None:
    begun: list[str] = []
    job, done = Job(begun, "a"), []
    examiners.examine(job, client="a", done=lambda: done.append(1))  # type: ignore[arg-type]
    await until(lambda: bool(begun))
    examiners.stop()
    job.released.set()
    assert examiners._pool is not None
    await asyncio.to_thread(examiners._pool.shutdown, wait=True)
    await asyncio.sleep(0)  # what its threads asked of the loop has run
    assert not done
