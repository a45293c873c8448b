"""Looking for what was put in."""

from __future__ import annotations

from cluster_simulation.planted import BUGS, plant
from cluster_simulation.scenario import Options, run


def options_of(name: str) -> Options:
    bug = BUGS[name]
    return Options(
        groups=bug.faults,
        workloads=bug.workloads,
        mode=bug.mode,
        layout=bug.layout,
        without_one=bug.without_one,
        seconds=bug.seconds,
    )


def first_seed(name: str) -> int | None:
    """The first that finds it; None if none of those that should does."""
    with plant(name):
        seeds = range(1, BUGS[name].seeds + 1)
        return next((seed for seed in seeds if run(seed, options_of(name)).anomaly), None)
