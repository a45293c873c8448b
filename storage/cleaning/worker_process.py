"""The cleaning process (see `worker`), seen from the broker that starts it."""

from __future__ import annotations

from tidemark.storage.cleaning.job import CleanedGroup, CleaningFailed, CleaningJob, CleaningStats
from tidemark.storage.workers.process import WorkerProcess


class ProcessRunner:
    def __init__(self) -> None:
        self._process = WorkerProcess("tidemark.storage.cleaning.worker")

    def begin(self, job: CleaningJob) -> None:
        try:
            self._process.begin(job)
        except OSError as error:
            raise CleaningFailed(f"the cleaning process is gone: {error}", is_passing=True) from error

    def next_result(self) -> CleanedGroup | CleaningStats:
        message = self._process.next_message()
        if isinstance(message, CleaningFailed):
            raise message
        if not isinstance(message, CleanedGroup | CleaningStats):
            raise CleaningFailed("the cleaning process ended early", is_passing=True)
        return message

    def close(self) -> None:
        self._process.close()
