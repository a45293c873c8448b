"""Whole histories from seeds, checked after every step. A failing seed is named; `simulate.py` replays it.

RAFT_SEEDS=20000 pytest -s tests/raft/test_simulation.py      # longer, and it says how many hours were simulated
"""

from __future__ import annotations

import os

import pytest
from raft_simulation import Violation, run_seed

SEEDS = int(os.environ.get("RAFT_SEEDS", "1000"))
BLOCKS = 10  # so that none of them runs into the time-out of one test


@pytest.mark.timeout(0 if "RAFT_SEEDS" in os.environ else 300)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_history_breaks_a_rule_of_raft(block: int) -> None:
    seconds, committed, reads = 0.0, 0, 0
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        try:
            result = run_seed(seed)
        except (Violation, AssertionError) as error:
            error.add_note(f"replay it: python tests/raft/simulate.py --seed {seed}")
            raise
        seconds += result.seconds
        committed += result.committed
        reads += result.reads
    print(f"\n{seconds / 3600:.2f} hours simulated, {committed} entries committed, {reads} reads answered")
    assert committed > reads > 0


def test_a_seed_replays_exactly() -> None:
    assert run_seed(7) == run_seed(7)


FOUND = {
    954: "an answer to an older term of the same leader confirmed a round of its present one: a stale read",
    4629: "a leader without a vote was asked to take it again, and failed",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_seed_found_is_mended(seed: int) -> None:
    run_seed(seed)
