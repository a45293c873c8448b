from __future__ import annotations

from tidemark.broker.server.request_memory import MemoryBudget


class Asker:
    def __init__(self, *, still_there: bool = True) -> None:
        self.granted = 0
        self.still_there = still_there

    def __call__(self, size: int) -> bool:
        self.granted += size
        return self.still_there


def test_requests_beyond_the_limit_wait_for_those_before_them() -> None:
    budget = MemoryBudget(100)
    first, second, third = Asker(), Asker(), Asker()
    budget.reserve(80, first)
    budget.reserve(50, second)
    budget.reserve(10, third)
    assert (first.granted, second.granted, third.granted) == (80, 0, 0)
    budget.release(80)
    assert (second.granted, third.granted, budget.used_bytes) == (50, 10, 60)


def test_one_request_larger_than_the_limit_goes_on_alone() -> None:
    budget = MemoryBudget(100)
    asker = Asker()
    budget.reserve(500, asker)
    assert asker.granted == 500


def test_who_has_hung_up_takes_nothing() -> None:
    budget = MemoryBudget(100)
    gone, next_one = Asker(still_there=False), Asker()
    budget.reserve(60, Asker())
    budget.reserve(60, gone)
    budget.reserve(60, next_one)
    budget.release(60)
    assert (gone.granted, next_one.granted, budget.used_bytes) == (60, 60, 60)
