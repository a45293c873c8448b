"""When a batch is written by a thread, and when at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.replication.writers import (
    AT_ONCE_BYTES_MAX_IF_BLOCKED,
    AT_ONCE_BYTES_MAX_IF_SLOW,
    BLOCKED_SECONDS,
    LOOK_EVERY_BYTES,
    NEARLY_FOR_SECONDS,
    NEARLY_WRITTEN_OUT,
    NICENESS,
    PIECE_BYTES,
    SLOW_FOR_SECONDS,
    SLOW_SECONDS,
    STILL_SLOW_SECONDS,
    Writers,
)
from tidemark.broker.server.crowd import BrokerLoop


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("tidemark.broker.replication.writers.monotonic", lambda: now[0])
    return now


def test_everything_is_written_at_once_while_the_disk_is_quick(clock):
    writers = Writers()
    for _ in range(10):
        writers.note(SLOW_SECONDS / 2)
    assert writers.at_once_bytes_max == sys.maxsize


def test_a_slow_write_lets_only_small_batches_be_written_at_once(clock):
    writers = Writers()
    writers.note(SLOW_SECONDS)
    assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_SLOW


@pytest.mark.parametrize(("waited", "at_once"), [(0, sys.maxsize), (1, AT_ONCE_BYTES_MAX_IF_SLOW)])
def test_a_write_that_waited_for_a_disk_is_slow_sooner_than_one_that_waited_for_a_processor(
    clock, monkeypatch, waited, at_once
):
    monkeypatch.setattr("tidemark.broker.replication.writers.sleeps", lambda: 7 + waited)
    writers = Writers()
    writers.note_since(clock[0] - BLOCKED_SECONDS / 2, 7, size=1)
    assert writers.at_once_bytes_max == sys.maxsize
    writers.note_since(clock[0] - BLOCKED_SECONDS * 1.5, 7, size=1)
    assert writers.at_once_bytes_max == at_once


def test_if_small_writes_wait_for_the_disk_too_only_very_small_ones_are_written_at_once(clock, monkeypatch):
    monkeypatch.setattr("tidemark.broker.replication.writers.sleeps", lambda: 8)
    writers = Writers()
    writers.note(SLOW_SECONDS)
    writers.note_since(clock[0] - BLOCKED_SECONDS * 2, 8, size=1)
    assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_SLOW, "it waited for a processor"
    writers.note_since(clock[0] - BLOCKED_SECONDS * 2, 7, size=1)
    assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_BLOCKED
    writers.note(STILL_SLOW_SECONDS)
    assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_BLOCKED, "as long as the disk is slow"
    clock[0] += SLOW_FOR_SECONDS
    writers.note(0.001)
    assert writers.at_once_bytes_max == sys.maxsize
    writers.note(SLOW_SECONDS)
    assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_SLOW, "the next time, small ones are tried again"


def test_a_disk_counts_as_slow_until_it_has_been_quick_for_a_while(clock):
    writers = Writers()
    writers.note(SLOW_SECONDS)
    clock[0] += SLOW_FOR_SECONDS - 1
    writers.note(STILL_SLOW_SECONDS)
    clock[0] += SLOW_FOR_SECONDS - 1
    writers.note(0.001)
    assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_SLOW
    clock[0] += 2
    writers.note(0.001)
    assert writers.at_once_bytes_max == sys.maxsize


@pytest.fixture
def share(monkeypatch):
    """Of what may lie in memory before the system writes it out."""
    told = [0.0]
    monkeypatch.setattr("tidemark.files.Files.unwritten_share", lambda _: told[0])
    return told


def test_threads_write_before_the_system_writes_out_what_lies_in_memory(clock, share):
    writers = Writers()
    writers.note_bytes(LOOK_EVERY_BYTES)
    share[0] = NEARLY_WRITTEN_OUT
    writers.note_since(clock[0], 0, size=LOOK_EVERY_BYTES - 1)
    assert writers.at_once_bytes_max == sys.maxsize, "it is not looked for every write"
    writers.note_since(clock[0], 0, size=1)
    assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_SLOW


def test_they_write_as_long_as_so_much_lies_there_and_a_little_longer(clock, share):
    writers = Writers()
    share[0] = 1.0
    for _ in range(3):
        writers.note_bytes(LOOK_EVERY_BYTES)
        clock[0] += NEARLY_FOR_SECONDS - 1
        writers.note(0.001)
        assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_SLOW
    share[0] = NEARLY_WRITTEN_OUT / 2
    writers.note_bytes(LOOK_EVERY_BYTES)
    clock[0] += 2
    writers.note(0.001)
    assert writers.at_once_bytes_max == sys.maxsize


def test_what_lies_in_memory_ends_no_slowness_of_the_disk(clock, share):
    writers = Writers()
    writers.note(SLOW_SECONDS)
    share[0] = 1.0
    writers.note_bytes(LOOK_EVERY_BYTES)
    clock[0] += NEARLY_FOR_SECONDS + 1
    writers.note(0.001)
    assert writers.at_once_bytes_max == AT_ONCE_BYTES_MAX_IF_SLOW


class Pending:
    seconds = 0.0
    is_plain = True

    def __init__(self, steps: list[str], *, name: str = "", size: int = 1) -> None:
        self._steps = steps
        self._name = name
        self.size = self._left = size

    def __call__(self) -> None:
        self._steps.append("written")

    def write(self, *, bytes_max: int) -> bool:
        self._left -= bytes_max
        self._steps.append(f"piece{self._name}")
        return self._left <= 0


class NoThreads:
    def submit(self, *_: object) -> None:
        raise RuntimeError("can't start new thread")


async def test_without_a_thread_the_loop_writes(monkeypatch):
    monkeypatch.setattr("tidemark.broker.replication.writers.new_executor", lambda *_, **__: NoThreads())
    steps: list[str] = []
    pending: Any = Pending(steps)
    Writers().write(pending, lambda: steps.append("done"))
    await asyncio.sleep(0)
    assert steps == ["written", "done"]


class PromptLoop(asyncio.SelectorEventLoop):
    is_let_in = True

    def take_short_turns(self) -> bool:
        return self.is_let_in


@pytest.mark.parametrize("is_let_in", [True, False])
def test_threads_have_a_low_priority_only_where_the_event_loop_is_not_let_in_at_once(monkeypatch, is_let_in):
    niceness: list[int] = []

    def new_executor(*_: object, **named: int) -> Any:
        niceness.append(named["niceness"])
        return NoThreads()

    monkeypatch.setattr("tidemark.broker.replication.writers.new_executor", new_executor)
    monkeypatch.setattr(PromptLoop, "is_let_in", is_let_in)

    async def write() -> None:
        Writers().write(Pending([]), lambda: None)  # type: ignore[arg-type]

    with asyncio.Runner(loop_factory=PromptLoop) as runner:
        runner.run(write())
    assert niceness == [0 if is_let_in else NICENESS]


def run_turns(writers: Writers, begin: Callable[[], None], turns: int) -> list[int]:
    """On a broker's event loop: which turns have no room for another step behind Kafka's clients."""
    taken = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, BrokerLoop)
        loop.selector.put_behind(loop.selector.fileno(), is_busy=lambda: False)  # from here on turns are counted
        await asyncio.sleep(0)
        begin()
        for turn in range(1, turns + 1):
            await asyncio.sleep(0)
            if loop.selector.background_turns.is_taken:
                taken.append(turn)

    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        runner.run(run())
    return taken


def test_one_piece_is_written_in_a_turn_and_no_other_work_is_done_behind_kafkas_clients_then():
    steps: list[str] = []
    writers = Writers()

    def begin() -> None:
        for name in "ab":
            pending: Any = Pending(steps, name=name, size=2 * PIECE_BYTES)
            writers.write(pending, lambda name=name: steps.append(f"done{name}"))  # type: ignore[misc]
        assert not steps

    assert run_turns(writers, begin, 6) == [1, 2, 3, 4]
    assert steps == ["piecea", "piecea", "donea", "pieceb", "pieceb", "doneb"]


def test_when_the_disk_becomes_slow_between_two_pieces_a_thread_writes_the_rest(monkeypatch):
    monkeypatch.setattr("tidemark.broker.replication.writers.new_executor", lambda *_, **__: NoThreads())
    steps: list[str] = []
    writers = Writers()
    pending: Any = Pending(steps, size=3 * PIECE_BYTES)
    slow: Any = Pending(steps, size=3 * PIECE_BYTES)
    slow.write = lambda **_: writers.note(SLOW_SECONDS)

    def begin() -> None:
        writers.write(slow, lambda: steps.append("done"))
        writers.write(pending, lambda: steps.append("done"))

    run_turns(writers, begin, 6)
    assert steps == ["written", "written", "done", "done"]  # where there is no thread, all of it at once


def test_a_writer_that_is_stopped_leaves_the_pieces_to_whoever_closes_the_log():
    steps: list[str] = []
    writers = Writers()

    def begin() -> None:
        pending: Any = Pending(steps, size=2 * PIECE_BYTES)
        writers.write(pending, lambda: steps.append("done"))
        asyncio.get_running_loop().call_soon(writers.stop)

    run_turns(writers, begin, 4)
    assert steps == ["piece"]
