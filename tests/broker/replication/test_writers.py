"""When a batch is written by a thread, and when at once."""

from __future__ import annotations

import asyncio
import sys
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
    SLOW_FOR_SECONDS,
    SLOW_SECONDS,
    STILL_SLOW_SECONDS,
    Writers,
)


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
    size = 1

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps

    def __call__(self) -> None:
        self._steps.append("written")


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
