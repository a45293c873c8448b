"""The world that a broker runs in: clocks, chance, threads, files and sockets. What is in broker/, storage/ and raft/
reaches them through this module and the event loop, and in no other way (tests/tidemark/test_environment.py).

`current()` is the environment of whoever asks: the real one, or, inside a simulation, the simulated machine whose event
loop runs the call. It is a context variable, so two brokers in one process may live in two worlds.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from random import Random
from typing import Any, Final, Protocol

from tidemark import portable
from tidemark.files import REAL_FILES, Files


class Lock(Protocol):
    """Between threads, each of which holds it for a moment."""

    def __enter__(self) -> bool: ...
    def __exit__(self, *_: Any) -> None: ...
    def locked(self) -> bool: ...


class Environment:
    """The real world."""

    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    boot_clock: Callable[[], float] = staticmethod(portable.boot_clock)
    wall_clock_ns: Callable[[], int] = staticmethod(time.time_ns)
    random_bytes: Callable[[int], bytes] = staticmethod(os.urandom)
    sleep: Callable[[float], None] = staticmethod(time.sleep)
    new_lock: Callable[[], Lock] = staticmethod(threading.Lock)
    files: Files = REAL_FILES

    def new_random(self) -> Random:
        return Random()

    def new_executor(self, threads: int, *, name: str, niceness: int = 0) -> Executor:
        if niceness:
            return ThreadPoolExecutor(threads, name, initializer=portable.lower_priority, initargs=(niceness,))
        return ThreadPoolExecutor(threads, name)

    def new_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return socket.socket(family, kind, protocol)

    def host_name(self) -> str:
        return socket.gethostname()


REAL: Final = Environment()
_current: ContextVar[Environment] = ContextVar("environment", default=REAL)

current = _current.get


def enter(environment: Environment) -> None:
    """From here on, in this context and in what it starts, the world is this one."""
    _current.set(environment)


# What most callers want of it.


def monotonic() -> float:
    """Seconds, for waiting: they stand still while the machine sleeps."""
    return _current.get().monotonic()


def boot_clock() -> float:
    """Seconds that go on while a process is stopped or its machine sleeps, whatever the wall clock is set to."""
    return _current.get().boot_clock()


def wall_clock_ms() -> int:
    return _current.get().wall_clock_ns() // 1_000_000


def chance() -> float:
    """From 0 to 1, as `random.random`."""
    return _current.get().new_random().random()


def random_bytes(count: int) -> bytes:
    return _current.get().random_bytes(count)


def new_random() -> Random:
    return _current.get().new_random()


def new_lock() -> Lock:
    return _current.get().new_lock()


def new_executor(threads: int, *, name: str, niceness: int = 0) -> Executor:
    """Threads, for work that waits for a disk. `niceness`: by how much they let others run first."""
    return _current.get().new_executor(threads, name=name, niceness=niceness)


def new_socket(family: int, kind: int, protocol: int = 0) -> socket.socket:
    return _current.get().new_socket(family, kind, protocol)
