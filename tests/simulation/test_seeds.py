"""Whole clusters from seeds: `make simulate` runs more of them, for longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_simulation.scenario import Options, run

from tidemark.broker.replication.writers import Writers

SECONDS = 3.0
HERE = Path(__file__).parent


@pytest.mark.parametrize("first", range(1, 21, 2))
def test_nothing_acknowledged_is_lost_whatever_fails(first: int) -> None:
    outcomes = [run(seed, Options(seconds=SECONDS)) for seed in range(first, first + 2)]
    assert [(each.seed, each.anomaly) for each in outcomes if each.anomaly] == []
    assert all(each.acknowledged for each in outcomes)


def test_nothing_acknowledged_is_lost_where_threads_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on disks that are slow all the time: every batch of a client is written by a thread."""
    written = []

    class Slow(Writers):
        __slots__ = ()

        def __init__(self, directory: str) -> None:
            super().__init__(directory)
            self.at_once_bytes_max = 0

        def note(self, seconds: float, *, is_blocked: bool = False) -> None:
            written.append(seconds)

    monkeypatch.setattr("tidemark.broker.replication.replica_table.Writers", Slow)
    outcomes = [run(seed, Options(seconds=SECONDS)) for seed in range(1, 4)]
    assert [(each.seed, each.anomaly) for each in outcomes if each.anomaly] == []
    assert all(each.acknowledged for each in outcomes)
    assert written


def test_five_nodes_get_on_as_well() -> None:
    outcome = run(1, Options(nodes=5, seconds=SECONDS))
    assert outcome.anomaly == ""


def digest_of(seed: int, options: Options, hash_seed: int) -> str:
    program = f"from cluster_simulation.scenario import *; print(run({seed}, {options!r}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(HERE)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=HERE.parents[1],
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("seed", "workloads"),
    [(5, None), (1, ("guest",))],
    ids=["drawn", "a guest that hangs up on several nodes"],
)
def test_a_seed_gives_the_same_events_every_time_and_with_any_hash_seed(
    seed: int, workloads: tuple[str, ...] | None
) -> None:
    options = Options(seconds=SECONDS, workloads=workloads)
    here = run(seed, options).digest
    assert [digest_of(seed, options, hash_seed) for hash_seed in (0, 1)] == [here, here]
