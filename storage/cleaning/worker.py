"""A process that cleans logs for a broker: jobs come on standard input, results go to standard output.

It is a process of its own because a cleaning computes all the time: on a thread it would take the interpreter's lock
from the event loop for milliseconds at a time. It writes `.cleaned` files only; the broker swaps them in. When the
broker ends, however it ends, its input does, and so does the process.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import BinaryIO

from tidemark.pacing import Pace
from tidemark.portable import keep_freed_memory
from tidemark.storage.cleaning.clean import clean
from tidemark.storage.cleaning.job import CleaningFailed, CleaningJob
from tidemark.storage.files import REAL_FILES
from tidemark.storage.workers.messages import read_message, write_message

_NICENESS = 10  # the broker's requests come first; a tenth of a busy core still cleans 10 to 30 MB/s
_KEPT_BYTES_MAX = 128 << 20  # freed memory; a window and its columns take a fraction of that


def run(jobs: BinaryIO, results: BinaryIO) -> None:
    broker = select.poll()
    broker.register(jobs.fileno(), select.POLLIN)
    while isinstance(job := read_message(jobs), CleaningJob):
        pace = Pace(job.bytes_per_second, clock=time.monotonic, sleep=time.sleep)

        def paced(count: int, pace: Pace = pace) -> None:
            if broker.poll(0):  # it sends nothing meanwhile: this is the end of the stream
                os._exit(0)
            pace(count)

        _clean(job, results, paced)


def _clean(job: CleaningJob, results: BinaryIO, paced: Callable[[int], None]) -> None:
    cleaning = clean(job, files=REAL_FILES, paced=paced)
    try:
        while True:
            write_message(results, next(cleaning))
    except StopIteration as end:
        write_message(results, end.value)
    except CleaningFailed as error:
        write_message(results, error)


def main() -> None:
    os.nice(_NICENESS)
    keep_freed_memory(bytes_max=_KEPT_BYTES_MAX)
    run(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
