from __future__ import annotations

import asyncio

import pytest

from tidemark.broker.core import periodic
from tidemark.broker.core.periodic import Job, PeriodicJobs


async def test_a_job_that_fails_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "INTERVAL_MS_MIN", 1)
    third_run, runs = asyncio.Event(), 0

    async def fail() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            third_run.set()
        raise RuntimeError("no disk")

    jobs = PeriodicJobs()
    jobs.start([Job(lambda: 1, fail)])
    await asyncio.wait_for(third_run.wait(), 5)
    await jobs.stop()


async def test_the_first_run_comes_after_the_initial_delay_and_not_after_an_interval() -> None:
    ran = asyncio.Event()

    async def run() -> None:
        ran.set()

    jobs = PeriodicJobs()
    jobs.start([Job(lambda: 3_600_000, run, initial_delay_ms=0)])
    await asyncio.wait_for(ran.wait(), 5)
    await jobs.stop()
