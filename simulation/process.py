"""Simulated machines and the processes on them.

A machine has a disk, clocks and a place in the network; it outlives its processes. A process has an event loop,
threads, open files and connections; when it is killed, none of its code runs any more.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidemark.environment import Environment, enter
from tidemark.simulation.disk import Disk
from tidemark.simulation.disk_work import DiskWork
from tidemark.simulation.files import SimulatedFiles
from tidemark.simulation.loop import SimulatedLoop
from tidemark.simulation.threads import SimulatedThreads
from tidemark.simulation.world import EPOCH_SECONDS, World

if TYPE_CHECKING:
    from tidemark.simulation.network import Network, SimulatedSocket

T = TypeVar("T")

THREAD_SECONDS_MAX: Final = 0.0003  # until a thread gets the processor
DEFAULT_THREADS: Final = 5


class Machine:
    def __init__(self, world: World, network: Network, name: str) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.disk = Disk(world.new_random(f"disk of {name}"))
        self.is_on = True
        self.boots = 0
        self.process: Process | None = None
        self.clock_rate = 1.0  # how fast its clocks run
        self.wall_offset_seconds = 0.0  # how wrong its wall clock is
        self.asleep_seconds = 0.0  # in all
        self.clock_base = 0.0  # what they would have shown at the beginning of the world
        network.machines[name] = self

    # Clocks

    def boot_clock(self) -> float:
        return self.clock_base + self.world.now * self.clock_rate

    def set_clock_rate(self, rate: float) -> None:
        self.clock_base = self.boot_clock() - self.world.now * rate
        self.clock_rate = rate
        if self.process is not None:
            self.process.loop.plan_again()

    def true_seconds(self, seconds: float) -> float:
        return seconds / self.clock_rate

    # Power

    def start_process(self) -> Process:
        assert self.is_on
        assert self.process is None or not self.process.is_alive
        self.boots += 1
        self.process = Process(self, f"{self.name}.{self.boots}")
        return self.process

    def kill_process(self) -> None:
        """As kill -9 does: the system closes its connections, and what it wrote is still in the page cache."""
        if self.process is not None and self.process.is_alive:
            self.process.die()
            self.network.process_died(self.process, says_so=True)

    def cut_power(self) -> None:
        """Nobody hears of it, and what was not synced may be lost."""
        if self.process is not None and self.process.is_alive:
            self.process.die()
            self.network.process_died(self.process, says_so=False)
        self.is_on = False
        self.disk.lose_power()

    def switch_on(self) -> None:
        self.is_on = True


class Process(Environment):
    """The environment of what runs in it."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.world = machine.world
        self.network = machine.network
        self.name = name
        self.is_alive = True
        self.is_stopped = False  # as SIGSTOP does, or because its machine sleeps
        self.files = SimulatedFiles(self)
        self.failures: list[str] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._chance = self.world.new_random(f"chance of {name}")
        self._threads_random = self.world.new_random(f"threads of {name}")
        self.disk_seconds = 0.0
        self.disk_work: DiskWork | None = None  # of the thread that has the processor
        self._under_way: list[DiskWork] = []
        self._stopped_until: float | None = None
        self.context = contextvars.copy_context()
        self.context.run(enter, self)
        self.loop = SimulatedLoop(self)  # type: ignore[abstract]
        self.default_executor = SimulatedThreads(self, DEFAULT_THREADS)

    # The environment

    def monotonic(self) -> float:
        machine = self.machine  # asked all the time: not by way of boot_clock
        return machine.clock_base + self.world.now * machine.clock_rate - machine.asleep_seconds

    def boot_clock(self) -> float:
        return self.machine.boot_clock()

    def wall_clock_ns(self) -> int:
        return int((EPOCH_SECONDS + self.machine.boot_clock() + self.machine.wall_offset_seconds) * 1e9)

    def random_bytes(self, count: int) -> bytes:
        return self._chance.randbytes(count)

    def new_random(self) -> Random:
        return Random(self._chance.getrandbits(64))

    def new_executor(self, threads: int, *, name: str, niceness: int = 0) -> Executor:
        return SimulatedThreads(self, threads)

    def new_socket(self, family: int, kind: int, protocol: int = 0) -> SimulatedSocket:  # type: ignore[override]
        from tidemark.simulation.network import SimulatedSocket

        return SimulatedSocket(self)

    def sleep(self, seconds: float) -> None:
        self.spend_on_disk(seconds)

    def host_name(self) -> str:
        return self.machine.name

    # Time

    def true_time(self, monotonic: float) -> float:
        """When, by the world's clock, this process's clock will show that."""
        return self.world.now + max(0.0, self.machine.true_seconds(monotonic - self.monotonic()))

    def begin_disk_work(self) -> DiskWork:
        work = self.disk_work = DiskWork(self.world.now)
        self._under_way.append(work)
        return work

    def end_disk_work(self, work: DiskWork) -> None:
        self._under_way.remove(work)
        work.finish()

    def thread_delay(self) -> float:
        return self._threads_random.random() * THREAD_SECONDS_MAX

    def spend_on_disk(self, seconds: float) -> None:
        self.disk_seconds += seconds

    def take_disk_seconds(self) -> float:
        taken, self.disk_seconds = self.disk_seconds, 0.0
        return taken + self.thread_delay()

    def standstill(self, *, disk: bool = True) -> float:
        """How long from now on nothing goes on, as far as that is known."""
        until = self._stopped_until or 0.0
        if disk:
            until = max(until, self.machine.disk.hangs_until)
        return max(0.0, until - self.world.now)

    def pause(self, seconds: float, *, machine_sleeps: bool = False) -> None:
        """As SIGSTOP does, or a virtual machine that is frozen: clocks go on, but the monotonic one not in sleep."""
        if self.is_stopped or not self.is_alive:
            return
        self.is_stopped = True
        self._stopped_until = self.world.now + seconds
        self.world.after(seconds, lambda: self._resume(seconds if machine_sleeps else 0.0))

    def _resume(self, slept: float) -> None:
        self.is_stopped = False
        self._stopped_until = None
        if self.is_alive:  # or the machine is awake, perhaps with another process
            self.machine.asleep_seconds += slept * self.machine.clock_rate
            self.loop.plan_again()

    # Code

    def call(self, work: Callable[[], T]) -> T:
        """Runs something as this process, now."""
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            return self.context.copy().run(work)
        finally:
            asyncio._set_running_loop(running)

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """From outside, as the system does: the network, a signal."""
        if self.is_alive:
            self.loop.call_from_outside(callback, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        task = self.call(lambda: self.loop.create_task(coroutine, name=name or None))
        self.tasks.append(task)
        return task

    def report(self, context: dict[str, Any]) -> None:
        """An error that nobody has handled."""
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")
        self.world.note(self.machine.name, f"UNHANDLED {context.get('message')}: {error!r}")

    def die(self) -> None:
        self.is_alive = False
        for work in self._under_way:
            work.interrupt(self.world.now)
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.network.graveyard.append(task)
        self.loop.close()
