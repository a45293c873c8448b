"""A simulation that finds nothing proves nothing, unless it finds what was put in.

These are the bugs that few seeds find; `make simulate PLANTED=all` puts all of them in."""

from __future__ import annotations

import pytest
from cluster_simulation.planted import BUGS, plant
from cluster_simulation.planted.search import first_seed, options_of
from cluster_simulation.scenario import run
from cluster_simulation.shrinking import shrunk

QUICK = (
    "directories-not-synced",
    "votes-are-not-saved",
    "acknowledged-before-replicated",
    "undecided-records-are-shown",
    "aborted-offsets-count",
    "any-clean-mark-speaks-for-all",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    assert first_seed(name) is not None, f"not found by {BUGS[name].seeds} seeds"


def test_a_failure_is_cut_down_to_the_faults_that_it_needs() -> None:
    name = "directories-not-synced"
    options = options_of(name)
    seed = first_seed(name)
    assert seed is not None
    with plant(name):
        whole = run(seed, options)
        small = shrunk(seed, options)
        assert run(seed, small).anomaly
    assert len(small.without_faults) >= whole.fault_count // 2
