"""The delay of the event loop, and what it is put down to."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tidemark.broker.core import loop_delay
from tidemark.broker.core.loop_delay import LoopDelay


def hold_up(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_loop_that_was_held_up_is_noticed_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    delay = LoopDelay()
    delay.start()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            hold_up(loop_delay.PERIOD_SECONDS + 3 * loop_delay.LATE_SECONDS)
            await asyncio.sleep(0.01)
    delay.stop()
    assert delay.late_count == 2
    assert delay.longest_seconds >= 3 * loop_delay.LATE_SECONDS
    assert [record.message.startswith("the event loop was held up for") for record in caplog.records] == [True]


async def test_a_loop_that_runs_is_not_called_late() -> None:
    delay = LoopDelay()
    delay.start()
    await asyncio.sleep(3.5 * loop_delay.PERIOD_SECONDS)
    delay.stop()
    assert delay.last_seconds < delay.longest_seconds + 1e-9
    assert delay._timer is not None
    assert delay._timer.cancelled()


def test_the_message_names_what_ran() -> None:
    """In a process of its own: the alarm clock of this one belongs to the test runner."""
    program = """
        import asyncio, logging, time
        from tidemark.broker.core.loop_delay import Alarm, LoopDelay

        def a_slow_function():
            time.sleep(0.8)

        async def main():
            delay = LoopDelay(alarm=Alarm.of_this_process())
            delay.start()
            a_slow_function()
            await asyncio.sleep(0.01)
            delay.stop()

        logging.basicConfig()
        asyncio.run(main())
    """
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=root, capture_output=True, text=True, check=True
    )
    assert "a_slow_function" in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_a_request_is_named_with_its_client() -> None:
    class Bound:
        name, version = "Metadata", 12

    class Connection:
        peer, client_id = "10.0.0.1:4711", "some client"

    def working(bound: Bound, connection: Connection) -> str:
        return loop_delay.describe(sys._getframe())

    told = working(Bound(), Connection())
    assert told.startswith("Metadata v12 from 10.0.0.1:4711 (client 'some client'), ")
    assert "working" in told
