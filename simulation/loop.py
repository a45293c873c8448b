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
from contextvars import Context, copy_context
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidemark.simulation.threads import SimulatedThreads

if TYPE_CHECKING:
    from tidemark.simulation.network import Listening, SimulatedSocket
    from tidemark.simulation.process import Process
    from tidemark.simulation.world import Event

TURN_SECONDS_MAX: Final = 0.00008  # until a process that has something to do gets the processor

ROUNDS_MAX: Final = 6  # of its loop, before others have their turn
NANOSECOND: Final = 1e-9
AT_ONCE_CHANCE: Final = 0.75  # that an idle process has the processor as soon as something arrives

T = TypeVar("T")


class Handle:
    """As asyncio's, with less to make: there is one for every step of every task."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


class TimerHandle(Handle):
    __slots__ = ("_when",)

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._callback = callback  # as Handle does, without another call
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._when = when

    def when(self) -> float:
        return self._when


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._context = process.context
        self._random = process.world.new_random(f"turns of {process.name}")
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._count = 0
        self._turn: Event | None = None  # planned because something is ready
        self._alarm: Event | None = None  # planned for a timer
        self._alarm_at = 0.0  # by the process's clock
        self._in_turn = False
        self._closed = False
        self.time = process.monotonic  # type: ignore[method-assign]

    # Time

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, context)
        if not self._closed:
            self._ready.append(handle)
            if not self._in_turn and self._turn is None:  # a turn plans the next one when it ends
                self._plan_turn()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_from_outside(self, callback: Callable[..., object], *args: Any) -> None:
        """The system has something for the process. If it is idle, it mostly begins at once."""
        if self._closed:
            return
        self._ready.append(Handle(callback, args, self._context))
        if self._turn is None and not self._in_turn:
            if self._random.random() < AT_ONCE_CHANCE and events._get_running_loop() is None:
                self._take_turn()
            else:
                self._plan_turn()

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        handle = TimerHandle(when, callback, args, context)
        if not self._closed:
            self._count += 1
            heappush(self._timers, (when, self._count, handle))
            if not self._in_turn:
                self._set_alarm()
        return handle

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """It stays in the queue until its time comes."""

    def _plan_turn(self) -> None:
        self._turn = self._world.after(self._random.random() * TURN_SECONDS_MAX, self._take_planned)

    def _set_alarm(self) -> None:
        """For the first timer. An alarm that comes too early does no harm, so it is not taken back."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not timers:
            return
        if self._alarm is not None:
            if self._alarm_at <= timers[0][0]:
                return
            self._alarm.cancel()
        self._alarm_at = timers[0][0]
        # A little later, so that the process's clock does show that time then, however it is rounded.
        self._alarm = self._world.at(self._process.true_time(self._alarm_at) + NANOSECOND, self._take_alarm)

    def plan_again(self) -> None:
        """The process's clock was changed, or it was stopped for a while."""
        if self._closed:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._set_alarm()
        if self._ready and self._turn is None:
            self._plan_turn()

    def _take_planned(self) -> None:
        self._turn = None
        self._take_turn()

    def _take_alarm(self) -> None:
        self._alarm = None
        if self._timers and self._timers[0][2]._cancelled:
            self._set_alarm()
        if self._alarm is None:
            self._take_turn()

    def _take_turn(self) -> None:
        if self._closed or self._process.is_stopped:
            return
        ready, timers = self._ready, self._timers
        if timers:
            now = self.time()
            while timers and timers[0][0] <= now:
                timer = heappop(timers)[2]
                if not timer._cancelled:
                    ready.append(timer)
        self._in_turn = True
        events._set_running_loop(self)
        rounds = 1 + int(self._random.random() * ROUNDS_MAX)
        while ready and rounds:
            rounds -= 1
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    self._end_turn()
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"{handle._callback!r} failed", "exception": error})
                if self._closed:
                    self._end_turn()
                    return
        self._in_turn = False
        events._set_running_loop(None)
        if ready and self._turn is None:
            self._plan_turn()
        if timers and (self._alarm is None or timers[0][0] < self._alarm_at):
            self._set_alarm()

    def _end_turn(self) -> None:
        self._in_turn = False
        events._set_running_loop(None)

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
        assert isinstance(used, SimulatedThreads)
        return used.run(partial(func, *args), self)

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
        for event in (self._turn, self._alarm):
            if event is not None:
                event.cancel()

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
