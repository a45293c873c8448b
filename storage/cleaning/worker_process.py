"""The worker process (see `worker`), seen from the broker that starts it."""

from __future__ import annotations

import os
import subprocess
import sys

from tidemark.storage.cleaning.job import CleanedGroup, CleaningFailed, CleaningJob, CleaningStats
from tidemark.storage.cleaning.messages import read_message, write_message


class ProcessRunner:
    """Started with the first job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, job: CleaningJob) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidemark.storage.cleaning.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
            )
        assert self._process.stdin is not None
        try:
            write_message(self._process.stdin, job)
        except OSError as error:
            raise CleaningFailed(f"the cleaning process is gone: {error}", is_passing=True) from error

    def next_result(self) -> CleanedGroup | CleaningStats:
        assert self._process is not None, "begin a job first"
        assert self._process.stdout is not None
        message = read_message(self._process.stdout)
        if isinstance(message, CleaningFailed):
            raise message
        if not isinstance(message, CleanedGroup | CleaningStats):
            raise CleaningFailed("the cleaning process ended early", is_passing=True)
        return message

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()  # reaps it, and closes its pipes
            self._process = None
