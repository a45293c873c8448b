"""Random histories of a coordinator, by seed: which of them to run, and how a seed that fails is told.

TIDEMARK_SEED=7 runs one alone; TIDEMARK_HISTORIES=80 runs fewer than a test asks for (`make check` does).
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest


def run_histories(run: Callable[[int], object], *, count: int, chunk: int = 0, chunks: int = 1) -> None:
    """Of `count` histories, every `chunks`-th beginning with `chunk`."""
    for seed in _seeds(count, chunk, chunks):
        try:
            run(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\nrun it alone with TIDEMARK_SEED={seed}")


def _seeds(count: int, chunk: int, chunks: int) -> range:
    chosen = os.environ.get("TIDEMARK_SEED")
    if chosen is not None:
        return range(int(chosen), int(chosen) + (chunk == 0))
    return range(chunk, int(os.environ.get("TIDEMARK_HISTORIES", count)), chunks)
