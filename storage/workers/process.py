"""A worker process, seen from the broker that starts it: jobs go to its input, results come from its output."""

from __future__ import annotations

import os
import subprocess
import sys

from tidemark.storage.workers.messages import read_message, write_message


class WorkerProcess:
    """Runs a module of ours. Started with the first job."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, job: object) -> None:
        """Raises OSError if the process is gone."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
            )
        assert self._process.stdin is not None
        write_message(self._process.stdin, job)

    def next_message(self) -> object:
        """Waits for it; None if the process has ended."""
        assert self._process is not None, "begin a job first"
        assert self._process.stdout is not None
        return read_message(self._process.stdout)

    def close(self) -> None:
        """Whatever is under way ends; from any thread."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()  # reaps it, and closes its pipes
            self._process = None
