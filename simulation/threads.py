"""Threads of a simulated process. A piece of work is done in one moment, a while after it was given; the waits for the
disk that it met decide how long it takes until its end is heard of."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from tidemark.simulation.process import Process

T = TypeVar("T")

LOOKS_AGAIN_SECONDS: Final = 0.2  # at a disk that hangs: it may be mended before its time


class SimulatedThreads(Executor):
    def __init__(self, process: Process, threads: int) -> None:
        self._process = process
        self._idle = threads
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_shut = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        self._waiting.append((future, partial(fn, *args, **kwargs)))
        self._begin()
        return future

    def _begin(self) -> None:
        while self._idle and self._waiting:
            self._idle -= 1
            future, work = self._waiting.popleft()
            self._wait_for_disk(future, work, self._process.thread_delay())

    def _wait_for_disk(self, future: Future[Any], work: Callable[[], Any], delay: float) -> None:
        self._process.world.after(delay, lambda: self._work(future, work))

    def _work(self, future: Future[Any], work: Callable[[], Any]) -> None:
        process = self._process
        if not process.is_alive:
            return
        if (wait := process.standstill()) > 0:  # the disk hangs, or the process is stopped
            self._wait_for_disk(future, work, min(wait, LOOKS_AGAIN_SECONDS))
            return
        finish = self._run(future, work)
        process.world.after(process.take_disk_seconds(), partial(self._end, finish))

    def _run(self, future: Future[Any], work: Callable[[], Any]) -> Callable[[], None]:
        """What is to be told when the work has taken its time."""
        if not future.set_running_or_notify_cancel():
            return lambda: None
        try:
            result = self._process.call(work)
        except BaseException as error:
            return partial(future.set_exception, error)
        return partial(future.set_result, result)

    def _end(self, finish: Callable[[], None]) -> None:
        if not self._process.is_alive:
            return
        if (wait := self._process.standstill(disk=False)) > 0:
            self._process.world.after(wait, partial(self._end, finish))
            return
        self._idle += 1
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
        for future, work in waiting:
            if cancel_futures or not wait:
                future.cancel()
            else:
                self._process.world.after(0, self._run(future, work))
