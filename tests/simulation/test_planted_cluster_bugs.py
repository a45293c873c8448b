"""A simulation that finds nothing proves nothing, unless it finds what was put in."""

from __future__ import annotations

import pytest
from cluster_simulation.__main__ import shrunk
from cluster_simulation.planted import BUGS, plant
from cluster_simulation.scenario import Options, run

SECONDS = 10.0


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    with plant(name):
        found = next((seed for seed in range(1, bug.seeds + 1) if _fails(seed, bug.groups)), None)
    assert found is not None, f"not found by {bug.seeds} seeds"


def _fails(seed: int, groups: tuple[str, ...]) -> bool:
    return bool(run(seed, Options(groups=groups, seconds=SECONDS)).anomaly)


def test_a_failure_is_cut_down_to_the_faults_that_it_needs() -> None:
    with plant("directories-not-synced"):
        options = Options(groups=("power", "clock"), seconds=SECONDS)
        seed = next(seed for seed in range(1, 20) if run(seed, options).anomaly)
        whole = run(seed, options)
        small = shrunk(seed, options)
        assert run(seed, small).anomaly
    assert len(small.without_faults) >= whole.fault_count // 2
