"""Threads of a simulated process. A piece of work is done in one moment, a while after it was given; the waits for the
disk that it met decide how long it takes until its end is heard of."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from tidemark.simulation.disk_work import DiskWork
    from tidemark.simulation.process import Process

T = TypeVar("T")
_Told = Future[Any] | asyncio.Future[Any]

LOOKS_AGAIN_SECONDS: Final = 0.2  # at a disk that hangs: it may be mended before its time


class SimulatedThreads(Executor):
    def __init__(self, process: Process, threads: int) -> None:
        self._process = process
        self._idle = threads
        self._waiting: deque[tuple[_Told, Callable[[], Any]]] = deque()
        self._is_shut = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        self._add(future, partial(fn, *args, **kwargs))
        return future

    def run(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop) -> asyncio.Future[T]:
        """As the event loop's `run_in_executor`."""
        future: asyncio.Future[T] = loop.create_future()
        self._add(future, work)
        return future

    def _add(self, told: _Told, work: Callable[[], Any]) -> None:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._waiting.append((told, work))
        self._begin()

    def _begin(self) -> None:
        while self._idle and self._waiting:
            self._idle -= 1
            told, work = self._waiting.popleft()
            self._wait_for_disk(told, work, self._process.thread_delay())

    def _wait_for_disk(self, told: _Told, work: Callable[[], Any], delay: float) -> None:
        self._process.world.after(delay, lambda: self._work(told, work))

    def _work(self, told: _Told, work: Callable[[], Any]) -> None:
        process = self._process
        if not process.is_alive:
            return
        if (wait := process.standstill()) > 0:  # the disk hangs, or the process is stopped
            self._wait_for_disk(told, work, min(wait, LOOKS_AGAIN_SECONDS))
            return
        on_disk = process.begin_disk_work()
        finish = self._run(told, work)
        process.disk_work = None
        process.world.after(process.take_disk_seconds(), partial(self._end, finish, on_disk))

    def _run(self, told: _Told, work: Callable[[], Any]) -> Callable[[], None]:
        """What is to be told when the work has taken its time."""
        if told.cancelled() or (isinstance(told, Future) and not told.set_running_or_notify_cancel()):
            return _nothing
        try:
            result = self._process.call(work)
        except BaseException as error:
            return partial(_tell_error, told, error)
        return partial(_tell, told, result)

    def _end(self, finish: Callable[[], None], on_disk: DiskWork) -> None:
        if not self._process.is_alive:
            return
        if (wait := self._process.standstill(disk=False)) > 0:
            self._process.world.after(wait, partial(self._end, finish, on_disk))
            return
        self._idle += 1
        self._process.end_disk_work(on_disk)
        self._process.call(finish)
        self._begin()

    def map(
        self, fn: Callable[..., T], *iterables: Any, timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        return map(fn, *iterables)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What waits is done at once, or given up: whoever calls this would wait for it."""
        self._is_shut = True
        waiting, self._waiting = self._waiting, deque()
        for told, work in waiting:
            if cancel_futures or not wait:
                told.cancel()
            else:
                self._process.world.after(0, self._run(told, work))


def _nothing() -> None: ...


def _tell(told: _Told, result: Any) -> None:
    if not told.cancelled():
        told.set_result(result)


def _tell_error(told: _Told, error: BaseException) -> None:
    if not told.cancelled():
        told.set_exception(error)
