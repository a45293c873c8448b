from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.broker.replication.background_loading import BATCH_MAX, BackgroundLoading

TOPIC = b"t" * 16


class Logs:
    """Stands in for the replicas: what was opened, and how."""

    def __init__(self) -> None:
        self.opened_now: list[int] = []
        self.taken: dict[int, Any] = {}
        self.threads: set[str] = set()
        self.gone: set[int] = set()
        self.may_load = threading.Event()
        self.may_load.set()
        self.opening = BackgroundLoading(
            prepare=self.prepare,
            open_now=lambda key: self.opened_now.append(key[1]),
            loaded=lambda key, loaded: self.taken.update({key[1]: loaded}),
            threads=3,
        )

    def prepare(self, key: tuple[bytes, int]) -> Any:
        return None if key[1] in self.gone else lambda: self.load(key[1])

    def load(self, index: int) -> Any:
        self.threads.add(threading.current_thread().name)
        assert self.may_load.wait(10)
        if index == 13:
            raise OSError("the disk is in trouble")
        return SimpleNamespace(index=index)

    def add(self, *indexes: int, is_new: bool = False) -> None:
        for index in indexes:
            self.opening.add((TOPIC, index), is_new=is_new)


@pytest.fixture
async def logs():
    logs = Logs()
    yield logs
    await logs.opening.close()


async def test_a_new_log_that_comes_alone_is_made_at_once(logs):
    logs.add(1, is_new=True)
    assert logs.opened_now == [1]


async def test_what_is_on_disk_is_loaded_by_a_thread(logs):
    logs.add(*range(3 * BATCH_MAX))
    await logs.opening.finished()
    assert sorted(logs.taken) == list(range(3 * BATCH_MAX))
    assert all(name.startswith("open") for name in logs.threads)
    assert logs.opened_now == []


async def test_the_loop_goes_on_while_a_log_takes_long(logs):
    logs.may_load.clear()
    logs.add(1, 2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (TOPIC, 1) in logs.opening
    logs.may_load.set()  # which this task could not do if it were held up
    await logs.opening.finished()
    assert (TOPIC, 1) not in logs.opening
    assert sorted(logs.taken) == [1, 2]


async def test_as_many_are_loaded_at_once_as_there_are_threads(logs):
    logs.may_load.clear()
    logs.add(*range(9))
    async with asyncio.timeout(10):
        while len(logs.threads) < 3:
            await asyncio.sleep(0.001)
    assert logs.taken == {}
    logs.may_load.set()
    await logs.opening.finished()
    assert sorted(logs.taken) == list(range(9))


async def test_one_that_fails_does_not_hinder_the_others(logs):
    logs.add(12, 13, 14)
    await logs.opening.finished()
    assert isinstance(logs.taken.pop(13), OSError)
    assert sorted(logs.taken) == [12, 14]


async def test_what_needs_no_loading_any_more_is_settled_on_the_loop(logs):
    logs.gone = {2}
    logs.add(1, 2)
    await logs.opening.finished()
    assert (sorted(logs.taken), logs.opened_now) == ([1], [2])


async def test_at_the_end_what_is_being_loaded_is_taken_and_the_rest_left_out(logs):
    logs.may_load.clear()
    logs.add(*range(BATCH_MAX + 5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    closing = asyncio.create_task(logs.opening.close())
    await asyncio.sleep(0)
    logs.may_load.set()
    await closing
    assert not logs.opening.is_complete
    assert len(logs.taken) <= BATCH_MAX


async def test_how_far_it_is_can_be_asked_while_it_lasts(logs, caplog, monkeypatch):
    monkeypatch.setattr("tidemark.broker.replication.background_loading.PROGRESS_SECONDS", 0.0)
    caplog.set_level("INFO")
    assert logs.opening.progress == (0, 0)
    logs.may_load.clear()
    logs.add(*range(2 * BATCH_MAX))
    assert logs.opening.progress == (0, 2 * BATCH_MAX)
    logs.may_load.set()
    await logs.opening.finished()
    assert logs.opening.progress == (0, 0)
    assert f"of {2 * BATCH_MAX} logs are open" in caplog.text
