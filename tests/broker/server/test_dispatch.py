"""What requests come to when the broker stops."""

import asyncio

import pytest

from tidemark.broker.server.dispatch import Dispatcher


async def test_a_shutdown_does_not_wait_for_ever_for_requests_that_come_to_no_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each that ends makes room for the next of its client: that nobody waits for anything any more would never be."""
    monkeypatch.setattr("tidemark.broker.server.dispatch.FINISH_SECONDS_MAX", 0.2)
    dispatcher = Dispatcher({})
    begun: list[asyncio.Task[None]] = []

    async def ask_on() -> None:
        await asyncio.sleep(0.01)
        begin()

    def begin() -> None:
        begun.append(asyncio.create_task(ask_on()))
        dispatcher._tasks.add(begun[-1])
        begun[-1].add_done_callback(dispatcher._tasks.discard)

    begin()
    await asyncio.wait_for(dispatcher.finish_tasks(), 20)
    await asyncio.wait(begun)
    assert len(begun) > 2, "it waited"
    assert begun[-1].cancelled()
