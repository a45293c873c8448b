"""The cleaning process waits until nothing else wants to run, and notices if that is never."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.portable import run_when_idle
from tidemark.storage import CleaningStarved
from tidemark.storage.cleaning.worker import Hunger


class Clock:
    def __init__(self) -> None:
        self.ran = self.waited = 0.0

    def __call__(self) -> tuple[float, float]:
        return self.ran, self.waited


def test_a_cleaning_that_is_not_let_run_says_so() -> None:
    clock = Clock()
    hunger = Hunger(clock)
    clock.ran, clock.waited = 0.2, 1.5
    hunger.check("t-0")  # not for long yet
    clock.waited = 2.0
    with pytest.raises(CleaningStarved, match=r"t-0: of 2 s, cleaning could run for 0\.2") as starved:
        hunger.check("t-0")
    told = pickle.loads(pickle.dumps(starved.value))
    assert isinstance(told, CleaningStarved)
    assert told.is_passing


def test_one_that_runs_half_of_the_time_goes_on_and_is_looked_at_anew() -> None:
    clock = Clock()
    hunger = Hunger(clock)
    for _ in range(5):
        clock.ran += 2.0
        clock.waited += 2.0
        hunger.check("t-0")
    clock.waited += 4.0
    with pytest.raises(CleaningStarved):
        hunger.check("t-0")


BROKER = """
import os, signal, sys
from tidemark.storage import Log, LogConfig, job_for, measure
from tidemark.storage.cleaning.worker_process import ProcessRunner
from tidemark.protocol.records import Record, build_batch, read_header

log = Log.open(sys.argv[1], config=LogConfig(compact=True), clean=True)
for _ in range(2):
    batch = build_batch([Record(timestamp=1, key=b"k", value=bytes(1000))])
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=1)
    log.roll()
log.flush()
dirtiness = measure(log, cleaned_up_to=0, high_watermark=2, now_ms=1)
runner = ProcessRunner()
runner.begin(job_for(log, dirtiness, now_ms=1, map_bytes=1 << 20, hash_seed=1, bytes_per_second=1.0))
print(runner._process._process.pid, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a child at once")
def test_a_cleaning_process_does_not_outlive_a_broker_that_is_killed(tmp_path: Path) -> None:
    """Paced to a byte per second, it does not look at its input for long, as if it were not let run."""
    command = [sys.executable, "-c", BROKER, str(tmp_path / "t-0")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        worker = Path("/proc", broker.stdout.readline().decode().strip())
        _until(lambda: any(os.path.realpath(each).endswith(".log") for each in (worker / "fd").iterdir()))
        broker.communicate(b"end\n")
    _until(lambda: not worker.exists())


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_process_can_give_way_to_all_others() -> None:
    child = os.fork()
    if not child:
        os._exit(0 if run_when_idle() and os.sched_getscheduler(0) == os.SCHED_IDLE else 1)
    assert os.waitpid(child, 0)[1] == 0
