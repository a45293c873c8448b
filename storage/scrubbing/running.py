"""Where scrubbing runs: in a process of its own, or, with files that only this process has, on the thread that asks."""

from __future__ import annotations

from typing import Protocol

from tidemark.environment import current, monotonic
from tidemark.pacing import Pace
from tidemark.storage.files import REAL_FILES, Files
from tidemark.storage.scrubbing.job import Scrubbed, ScrubEnded, ScrubJob, scrub


class ScrubRunner(Protocol):
    def run(self, job: ScrubJob) -> Scrubbed:
        """For any thread: takes as long as the pace says. Raises OSError, or ScrubEnded."""
        ...

    def close(self) -> None:
        """Whatever is under way ends; from any thread."""
        ...


def scrub_runner_for(files: Files) -> ScrubRunner:
    return ProcessScrubRunner() if files is REAL_FILES else ThreadScrubRunner(files)


class ProcessScrubRunner:
    def __init__(self) -> None:
        from tidemark.storage.workers.process import WorkerProcess  # not before there is something to read

        self._process = WorkerProcess("tidemark.storage.scrubbing.worker")

    def run(self, job: ScrubJob) -> Scrubbed:
        try:
            self._process.begin(job)
        except OSError as error:
            raise ScrubEnded(f"the scrubbing process is gone: {error}") from error
        message = self._process.next_message()
        if isinstance(message, OSError):
            raise message
        if not isinstance(message, Scrubbed):
            raise ScrubEnded("the scrubbing process ended early")
        return message

    def close(self) -> None:
        self._process.close()


class ThreadScrubRunner:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._is_closed = False

    def run(self, job: ScrubJob) -> Scrubbed:
        pace = Pace(job.bytes_per_second, clock=monotonic, sleep=current().sleep)

        def paced(count: int) -> None:
            if self._is_closed:
                raise ScrubEnded(f"{job.directory}: scrubbing was given up")
            pace(count)

        return scrub(job, files=self._files, paced=paced)

    def close(self) -> None:
        self._is_closed = True
