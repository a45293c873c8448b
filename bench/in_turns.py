"""Variants of one thing, each measured in processes of its own, in turns: using one makes no other quicker."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterable


def compare(script: str, names: Iterable[str], *, turns: int) -> None:
    """`script`, given a name, prints its microseconds. Medians are shown, and what each takes more than the first."""
    took: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(turns):
        for name, figures in took.items():
            shown = subprocess.run([sys.executable, script, name], stdout=subprocess.PIPE, check=True).stdout
            figures.append(float(shown))
    first = statistics.median(next(iter(took.values())))
    for name, figures in took.items():
        figure = statistics.median(figures)
        spread = f"({min(figures):.2f} to {max(figures):.2f})"
        print(f"{name:16} {figure:6.2f} µs per request, {figure - first:+.2f} {spread}")
