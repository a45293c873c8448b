from __future__ import annotations

import asyncio

import pytest

from tidemark.broker.server import waiting_turns
from tidemark.broker.server.waiting_turns import WaitingTurns


async def test_those_who_wait_go_on_in_order_and_others_have_turns_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    now, events = 0.0, []
    monkeypatch.setattr(waiting_turns, "monotonic", lambda: now)
    turns = WaitingTurns(asyncio.get_running_loop())

    def work(number: int) -> None:
        nonlocal now
        now += 0.004
        events.append(str(number))

    for number in range(7):
        turns.add(lambda number=number: work(number))  # type: ignore[misc]
    for _ in range(5):
        await asyncio.sleep(0)
        events.append("other")
    assert "".join(events).replace("other", "|").rstrip("|") == "012|345|6"


async def test_one_that_fails_does_not_stop_the_others() -> None:
    turns, done = WaitingTurns(asyncio.get_running_loop()), asyncio.Event()
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.append(context["exception"]))

    def fail() -> None:
        raise ValueError("on purpose")

    turns.add(fail)
    turns.add(done.set)
    await asyncio.wait_for(done.wait(), 5)
    assert [str(each) for each in heard] == ["on purpose"]
