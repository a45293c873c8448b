"""A process that cleans logs for a broker: jobs come on standard input, results go to standard output.

It is a process of its own because a cleaning computes all the time: on a thread it would take the interpreter's lock
from the event loop for milliseconds at a time. It runs when nothing else wants to (see `run_when_idle`); if that is
hardly ever, it says so, and the broker starts another one with a share of its own. It writes `.cleaned` files only; the
broker swaps them in. When the broker ends, however it ends, its input does, and so does the process.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import BinaryIO

from tidemark.pacing import Pace
from tidemark.portable import end_with_parent, keep_freed_memory, run_when_idle, waited_to_run
from tidemark.storage.cleaning.clean import clean
from tidemark.storage.cleaning.cleaner_files import CleanerFiles
from tidemark.storage.cleaning.job import CleaningFailed, CleaningJob, CleaningStarved
from tidemark.storage.files import Files
from tidemark.storage.workers.messages import read_message, write_message

_NICENESS = 10  # the broker's requests come first; a tenth of a busy core still cleans 20 to 40 MB/s
_STARVED_AFTER_SECONDS = 2.0  # in which it wanted to run,
_STARVED_SHARE = 0.2  # and did so for a smaller part of that
_KEPT_BYTES_MAX = 128 << 20  # freed memory; a window and its columns take a fraction of that


class Hunger:
    """Whether a process that gives way to all others is let run at all."""

    def __init__(self, waited: Callable[[], tuple[float, float]] = waited_to_run) -> None:
        self._waited = waited
        self._since = waited()

    def check(self, directory: str) -> None:
        run, delayed = (now - before for now, before in zip(self._waited(), self._since, strict=True))
        if run + delayed < _STARVED_AFTER_SECONDS:
            return
        if run < _STARVED_SHARE * (run + delayed):
            raise CleaningStarved(f"{directory}: of {run + delayed:.0f} s, cleaning could run for {run:.1f}")
        self._since = self._waited()


def run(jobs: BinaryIO, results: BinaryIO) -> None:
    files = CleanerFiles()
    broker = select.poll()
    broker.register(jobs.fileno(), select.POLLIN)
    while isinstance(job := read_message(jobs), CleaningJob):
        pace = Pace(job.bytes_per_second, clock=time.monotonic, sleep=time.sleep)
        hunger = Hunger() if job.is_patient and run_when_idle() else None

        def paced(count: int, job: CleaningJob = job, pace: Pace = pace, hunger: Hunger | None = hunger) -> None:
            if broker.poll(0):  # it sends nothing meanwhile: this is the end of the stream
                os._exit(0)
            if hunger is not None:
                hunger.check(job.directory)
            pace(count)

        _clean(job, files, results, paced)


def _clean(job: CleaningJob, files: Files, results: BinaryIO, paced: Callable[[int], None]) -> None:
    cleaning = clean(job, files=files, paced=paced)
    try:
        while True:
            write_message(results, next(cleaning))
    except StopIteration as end:
        write_message(results, end.value)
    except CleaningFailed as error:
        write_message(results, error)


def main() -> None:
    # At once, and not only when it looks at its input the next time: it may be kept from running for long, and a
    # `.cleaned` file that it makes while the next broker swaps would have the start after that undo the swap.
    end_with_parent()
    os.nice(_NICENESS)
    keep_freed_memory(bytes_max=_KEPT_BYTES_MAX)
    run(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
