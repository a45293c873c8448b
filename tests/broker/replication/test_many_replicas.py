from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tidemark.broker.core.time_slice import SLICE_SECONDS
from tidemark.broker.replication.many_replicas import in_chunks


async def test_work_on_very_many_replicas_lets_others_have_their_turn() -> None:
    sizes: list[int] = []
    turns: list[int] = []

    def take_long(chunk: Sequence[int]) -> None:
        sizes.append(len(chunk))
        time.sleep(SLICE_SECONDS)

    work = asyncio.ensure_future(in_chunks(range(120), take_long))
    while not work.done():
        turns.append(sum(sizes))
        await asyncio.sleep(0)
    assert sizes == [50, 50, 20]
    assert {50, 100, 120} <= set(turns)
