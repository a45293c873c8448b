"""Garbage collections of a worker that has much loaded."""

from __future__ import annotations

import subprocess
import sys

CODE = """\
import gc
import pyarrow
from tidemark.pipeline.worker_memory import leave_out_loaded_modules

leave_out_loaded_modules()
before = gc.get_freeze_count()
assert before > 10_000, before
made = [[] for _ in range(1000)]
leave_out_loaded_modules()
assert gc.get_freeze_count() <= before, "what a task makes is collected as ever"
"""


def test_modules_are_left_out_once_and_what_tasks_make_is_not() -> None:
    """In a process of its own: the tests' own garbage is to be collected."""
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=60)
