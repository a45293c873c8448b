from __future__ import annotations

import asyncio

from tidemark.broker.core.time_slice import TimeSlice


async def test_others_run_when_a_slice_is_over_and_not_before() -> None:
    now = 0.0
    turns: list[float] = []
    asyncio.get_running_loop().call_soon(lambda: turns.append(now))
    slice_ = TimeSlice(seconds=0.01, clock=lambda: now)
    await slice_.pause()
    assert turns == []
    now = 0.02
    await slice_.pause()
    assert turns == [0.02]
