"""Garbage collections of a worker that has much loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


IMPORTERS = """\
import importlib, sys, zipfile
from zipimport import zipimporter

folder = sys.argv[1]
for name in ("pyspark.zip", "theirs.zip"):
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        for module in ("first", "second"):
            archive.writestr(f"{name[:-4]}_{module}.py", "")
    sys.path.insert(0, f"{folder}/{name}")
import pyspark_first, theirs_first
from tidemark.pipeline.worker_memory import leave_out_loaded_modules

leave_out_loaded_modules()
kept = [place for place, each in sys.path_importer_cache.items() if isinstance(each, zipimporter)]
assert kept == [f"{folder}/theirs.zip"], kept
importlib.invalidate_caches()
import pyspark_second, theirs_second
"""


def test_archives_of_spark_are_not_read_again_and_modules_are_still_found(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", IMPORTERS, str(tmp_path)], check=True, timeout=60)
