from __future__ import annotations

from tidemark.broker.server.request_memory import MemoryBudget


class Receiver:
    def __init__(self, *, still_there: bool = True) -> None:
        self.granted = 0
        self.still_there = still_there

    def room_granted(self) -> bool:
        self.granted += 1
        return self.still_there


def test_what_has_arrived_counts_and_beyond_the_limit_one_goes_on() -> None:
    budget = MemoryBudget(100)
    first, second, third = Receiver(), Receiver(), Receiver()
    assert budget.count(80, first)
    assert not budget.count(50, second)
    budget.await_room(second)
    assert not budget.count(10, third)
    budget.await_room(third)
    assert (second.granted, third.granted) == (1, 0)
    assert budget.count(500, second)
    budget.release(550, second)
    assert (third.granted, budget.used_bytes) == (1, 90)


def test_one_that_dawdles_loses_its_place_to_the_next() -> None:
    budget = MemoryBudget(100)
    slow, honest = Receiver(), Receiver()
    for receiver in (slow, honest):
        assert not budget.count(101, receiver)
        budget.await_room(receiver)
    assert (slow.granted, honest.granted) == (1, 0)
    budget.relieve()
    assert honest.granted == 1
    assert budget.count(1, honest)
    assert not budget.count(1, slow)


def test_a_closed_connection_keeps_no_other_waiting() -> None:
    budget = MemoryBudget(100)
    first, gone, last = Receiver(), Receiver(still_there=False), Receiver()
    for receiver in (first, gone, last):
        assert not budget.count(101, receiver)
        budget.await_room(receiver)
    budget.release(101, first)
    assert (gone.granted, last.granted) == (1, 1)
