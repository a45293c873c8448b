"""A cleaning that is under way, seen from the broker: results are waited for, one at a time, on some thread."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from tidemark.environment import current, monotonic
from tidemark.pacing import Pace
from tidemark.storage.cleaning.job import CleanedGroup, CleaningFailed, CleaningJob, CleaningStats
from tidemark.storage.files import REAL_FILES, Files

Result = CleanedGroup | CleaningStats


class Runner(Protocol):
    """Runs one job after another."""

    def begin(self, job: CleaningJob) -> None: ...

    def next_result(self) -> Result:
        """Waits for it. The last one of a job is its CleaningStats. Raises CleaningFailed."""
        ...

    def close(self) -> None:
        """Whatever is under way ends; from any thread."""
        ...


def runner_for(files: Files) -> Runner:
    """Another process does not see files that exist in this one only: those of a simulation or a test."""
    if files is not REAL_FILES:
        return ThreadRunner(files)
    from tidemark.storage.cleaning.worker_process import ProcessRunner  # not before there is something to clean

    return ProcessRunner()


class ThreadRunner:
    """Works on the thread that asks, with any kind of files."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._job: CleaningJob | None = None
        self._cleaning: Generator[CleanedGroup, None, CleaningStats] | None = None

    def begin(self, job: CleaningJob) -> None:
        from tidemark.storage.cleaning.clean import clean  # loads numpy

        pace = Pace(job.bytes_per_second, clock=monotonic, sleep=current().sleep)

        def paced(count: int) -> None:
            if self._job is not job:
                raise CleaningFailed(f"{job.directory}: the cleaning was given up", is_passing=True)
            pace(count)

        self._job = job
        self._cleaning = clean(job, files=self._files, paced=paced)

    def next_result(self) -> Result:
        assert self._cleaning is not None, "begin a job first"
        try:
            return next(self._cleaning)
        except StopIteration as end:
            stats: CleaningStats = end.value
            return stats

    def close(self) -> None:
        self._job = None
        self._cleaning = None
