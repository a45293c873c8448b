"""The cleaning process waits until nothing else wants to run, and notices if that is never."""

from __future__ import annotations

import os
import pickle

import pytest

from tidemark.portable import run_when_idle
from tidemark.storage import CleaningStarved
from tidemark.storage.cleaning.worker import Hunger


class Clock:
    def __init__(self) -> None:
        self.ran = self.waited = 0.0

    def __call__(self) -> tuple[float, float]:
        return self.ran, self.waited


def test_a_cleaning_that_is_not_let_run_says_so() -> None:
    clock = Clock()
    hunger = Hunger(clock)
    clock.ran, clock.waited = 0.2, 1.5
    hunger.check("t-0")  # not for long yet
    clock.waited = 2.0
    with pytest.raises(CleaningStarved, match=r"t-0: of 2 s, cleaning could run for 0\.2") as starved:
        hunger.check("t-0")
    told = pickle.loads(pickle.dumps(starved.value))
    assert isinstance(told, CleaningStarved)
    assert told.is_passing


def test_one_that_runs_half_of_the_time_goes_on_and_is_looked_at_anew() -> None:
    clock = Clock()
    hunger = Hunger(clock)
    for _ in range(5):
        clock.ran += 2.0
        clock.waited += 2.0
        hunger.check("t-0")
    clock.waited += 4.0
    with pytest.raises(CleaningStarved):
        hunger.check("t-0")


def test_a_process_can_give_way_to_all_others() -> None:
    child = os.fork()
    if not child:
        os._exit(0 if run_when_idle() and os.sched_getscheduler(0) == os.SCHED_IDLE else 1)
    assert os.waitpid(child, 0)[1] == 0
