"""A process that appends and flushes is killed at a random moment: what it reported as flushed is there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidemark.protocol.records import iter_records
from tidemark.storage import Log, LogConfig

ROOT = Path(__file__).parents[2]
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)

WRITER = """
import sys
from tidemark.protocol.records import Record, build_batch, read_header
from tidemark.storage import Log, LogConfig

log = Log.open(sys.argv[1], config=LogConfig(segment_bytes=20_000, index_interval_bytes=500), clean=False)
number = log.end_offset
while True:
    for _ in range(5):
        batch = build_batch([Record(timestamp=1, value=b"%d" % number + b"." * (number % 900))])
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=0)
        number += 1
    log.flush()
    print(log.recovery_point, flush=True)
"""


def write_and_kill(directory: Path, seconds: float) -> int:
    """Runs the writer, kills it, and returns the last offset that it reported as flushed."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    first = writer.stdout.readline()
    time.sleep(seconds)  # not a wait for anything: the moment of the kill is what is tried out
    writer.send_signal(signal.SIGKILL)
    reported = [first, *writer.stdout.read().split("\n")]
    writer.stdout.close()
    writer.wait()
    return max(int(line) for line in reported if line.strip())


@pytest.mark.parametrize("seed", range(3))
def test_flushed_records_survive_a_kill(tmp_path, read_batches, seed):
    chance = random.Random(seed)
    directory = tmp_path / "topic-0"
    for _ in range(2):
        flushed = write_and_kill(directory, chance.uniform(0.01, 0.2))
        log = Log.open(str(directory), config=CONFIG, clean=False)
        assert log.end_offset >= flushed
        values = [record.value for _, batch in read_batches(log) for record in iter_records(batch)]
        assert values == [b"%d" % number + b"." * (number % 900) for number in range(log.end_offset)]
        log.close(clean=False)
