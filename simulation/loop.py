"""The event loop of a simulated process: asyncio's meaning, the world's time.

Callbacks run in the order in which they were registered, as asyncio promises. What chance decides is when a process
gets its turn, and so what happens first among several processes.
"""

from __future__ import annotations

import asyncio
import io
import socket
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from tidemark.simulation.network import Listening, SimulatedSocket
    from tidemark.simulation.process import Process

TURN_SECONDS_MAX: Final = 0.00008  # until a process that has something to do gets the processor

ROUNDS_MAX: Final = 6  # of its loop, before others have their turn

T = TypeVar("T")


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._random = process.world.new_random(f"turns of {process.name}")
        self._ready: deque[events.Handle] = deque()
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._count = 0
        self._turn_at: float | None = None  # by the world's clock
        self._turn: Any = None
        self._in_turn = False
        self._closed = False

    # Time

    def time(self) -> float:
        return self._process.monotonic()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> events.Handle:  # type: ignore[override]
        handle = events.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
            if self._in_turn:
                return handle  # the turn plans the next one when it ends
            if self._turn_at is None or self._turn_at > self._world.now + TURN_SECONDS_MAX:
                self._plan(self._world.now + self._random.random() * TURN_SECONDS_MAX)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        handle = events.TimerHandle(when, callback, args, self, context)
        if not self._closed:
            self._count += 1
            heappush(self._timers, (when, self._count, handle))
            handle._scheduled = True  # type: ignore[attr-defined]
            if self._in_turn:
                return handle
            at = self._process.true_time(when)
            if self._turn_at is None or at < self._turn_at:
                self._plan(at)
        return handle

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """It stays in the queue until its time comes."""

    def _plan(self, at: float) -> None:
        if self._turn is not None:
            self._turn.cancel()
        self._turn_at = at
        self._turn = self._world.at(at, self._take_turn)

    def plan_again(self) -> None:
        """The process's clock was changed, or it was stopped for a while."""
        if self._closed:
            return
        if self._ready:
            self._plan(self._world.now + self._random.random() * TURN_SECONDS_MAX)
            return
        while self._timers and self._timers[0][2]._cancelled:
            heappop(self._timers)
        if self._timers:
            self._plan(self._process.true_time(self._timers[0][0]))
        else:
            if self._turn is not None:
                self._turn.cancel()
            self._turn_at = self._turn = None

    def _take_turn(self) -> None:
        self._turn_at = self._turn = None
        if self._closed or self._process.is_stopped:
            return
        ready, timers, now = self._ready, self._timers, self.time() + 1e-9
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            handle._scheduled = False  # type: ignore[attr-defined]
            if not handle._cancelled:
                ready.append(handle)
        self._in_turn = True
        events._set_running_loop(self)
        try:
            rounds = 1 + int(self._random.random() * ROUNDS_MAX)
            while ready and rounds:
                rounds -= 1
                for _ in range(len(ready)):
                    next_one = ready.popleft()
                    if not next_one._cancelled:
                        next_one._run()
                    if self._closed:
                        return
        finally:
            self._in_turn = False
            events._set_running_loop(None)
        self.plan_again()

    # Tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)  # type: ignore[arg-type]
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        used = executor or self._process.default_executor
        return asyncio.wrap_future(used.submit(func, *args), loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self._process.report(context)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """As a process ends: nothing that it had planned happens."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        if self._turn is not None:
            self._turn.cancel()

    # The network

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **_: Any
    ) -> tuple[Any, Any]:
        assert host is not None
        assert port is not None
        endpoint = await self._process.network.connect(self._process, host, port)
        protocol = protocol_factory()
        endpoint.attach(protocol)
        return endpoint, protocol

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: SimulatedSocket | None = None,
        start_serving: bool = True,
        **_: object,
    ) -> Listening:
        from tidemark.simulation.network import Listening, SimulatedSocket

        if sock is None:
            sock = SimulatedSocket(self._process)
            sock.bind((host or self._process.machine.name, port or 0))
        listening = Listening(self._process, sock, protocol_factory)
        if start_serving:
            await listening.start_serving()
        return listening

    async def sock_connect(self, sock: Any, address: Any) -> None:
        endpoint = await self._process.network.connect(self._process, *address)
        endpoint.abort()

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        raise io.UnsupportedOperation("a simulated socket has no descriptor to watch: use streams, or a protocol")

    def remove_reader(self, fd: Any) -> bool:
        self._process.network.stop_accepting(self._process, fd)
        return True

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """No signal reaches a simulated process."""

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self) -> None:
        pass
