"""Work that is repeated in the background for as long as a node runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

INTERVAL_MS_MIN: Final = 100  # an interval of 0 must not take the whole processor


class Job(NamedTuple):
    interval_ms: Callable[[], float]  # asked before every wait, so that a changed setting counts
    run: Callable[[], Awaitable[None]]
    initial_delay_ms: float | None = None  # before the first run, if that is not one interval after the start


class PeriodicJobs:
    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, jobs: Iterable[Job]) -> None:
        self._tasks += [asyncio.create_task(_repeat(job)) for job in jobs]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()


async def _repeat(job: Job) -> None:
    wait_ms = job.interval_ms() if job.initial_delay_ms is None else job.initial_delay_ms
    while True:
        await asyncio.sleep(max(wait_ms, INTERVAL_MS_MIN) / 1000)
        wait_ms = job.interval_ms()
        try:
            await job.run()
        except Exception:
            log.exception("periodic work failed; it is tried again at the next interval")
