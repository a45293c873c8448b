"""A process that reads logs for a broker: jobs come on standard input, results go to standard output.

A process of its own, since to look at every batch is to compute: on a thread it would take the interpreter's lock from
the event loop. When the broker ends, however it ends, its input does, and so does the process.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import BinaryIO

from tidemark.pacing import Pace
from tidemark.storage.files import REAL_FILES
from tidemark.storage.scrubbing.job import ScrubJob, scrub
from tidemark.storage.workers.messages import read_message, write_message

_NICENESS = 10  # everything else comes first


def run(jobs: BinaryIO, results: BinaryIO) -> None:
    broker = select.poll()
    broker.register(jobs.fileno(), select.POLLIN)
    while isinstance(job := read_message(jobs), ScrubJob):
        pace = Pace(job.bytes_per_second, clock=time.monotonic, sleep=time.sleep)

        def paced(count: int, pace: Pace = pace) -> None:
            if broker.poll(0):  # it sends nothing meanwhile: this is the end of the stream
                os._exit(0)
            pace(count)

        try:
            write_message(results, scrub(job, files=REAL_FILES, paced=paced))
        except OSError as error:
            write_message(results, error)


def main() -> None:
    os.nice(_NICENESS)
    run(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
