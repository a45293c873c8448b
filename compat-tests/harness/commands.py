"""The `tidemark` command, as an operator types it."""

from __future__ import annotations

import subprocess
import sys

from harness.broker_process import REPOSITORY

SECONDS_MAX = 180


def tidemark(*words: str, seconds_max: float = SECONDS_MAX) -> str:
    """What it prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli.main", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    assert done.returncode == 0, f"tidemark {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
