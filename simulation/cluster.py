"""Brokers and clients in one simulated world."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from tidemark.broker.config import load_config
from tidemark.broker.node import Node
from tidemark.environment import current
from tidemark.simulation.network import Network
from tidemark.simulation.process import Machine, Process
from tidemark.simulation.world import World

T = TypeVar("T")

CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
CLOSED_TIMES_MAX: Final = 20
DEFAULTS: Final = {
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "9000",
    "group.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class OutOfTime(Exception):
    """What was waited for did not happen within its virtual time."""


class Broker:
    """A machine that runs one node, from start to start."""

    def __init__(self, cluster: Cluster, node_id: int, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.machine = Machine(cluster.world, cluster.network, f"node-{node_id}")
        self._cluster = cluster
        self._settings = settings
        self.node: Node | None = None
        self.is_ready = False
        self.may_start = True
        self.failure: BaseException | None = None

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def process(self) -> Process | None:
        return self.machine.process

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        if self.is_running or not self.may_start:
            return
        self.machine.switch_on()
        self.is_ready = False
        self.failure = None
        self._cluster.world.note(self.name, "starts")
        process = self.machine.start_process()
        process.spawn(self._run(process), name="node")

    async def _run(self, process: Process) -> None:
        try:
            self.node = Node(load_config(overrides=dict(self._settings)), failed=partial(self._failed, process))
            await self.node.start()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(process, error)
            return
        self.is_ready = True
        self._cluster.world.note(self.name, "is ready")

    def _failed(self, process: Process, error: BaseException) -> None:
        """The process would end with an error."""
        if not process.is_alive:
            return  # what a killed one was about is thrown away, and may object
        self.failure = error
        self._cluster.world.note(self.name, f"FAILED {type(error).__name__}: {error}")
        self._cluster.world.after(0, self.kill)

    def kill(self) -> None:
        if self.is_running:
            self._cluster.world.note(self.name, "is killed")
            self.machine.kill_process()
        self.is_ready = False

    def cut_power(self) -> None:
        self._cluster.world.note(self.name, "loses power")
        self.machine.cut_power()
        self.is_ready = False

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """As SIGTERM does."""
        if not self.is_running or not self.is_ready or self.node is None:
            return
        self._cluster.world.note(self.name, "stops")
        self.is_ready = False
        assert self.process is not None
        self.process.spawn(self._stop(self.node, then), name="stop")

    async def _stop(self, node: Node, then: Callable[[], None] | None) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await node.stop()
        self._cluster.world.note(self.name, "has stopped")
        self._cluster.world.after(0, self.machine.kill_process)
        if then is not None:
            self._cluster.world.after(0.001, then)


class Cluster:
    """`with Cluster(seed) as cluster`: brokers on machines `node-1`, `node-2`, …; clients on machines of their own."""

    def __init__(
        self,
        seed: int | str,
        *,
        nodes: int = 3,
        settings: Mapping[str, str] | Callable[[int], Mapping[str, str]] | None = None,
    ) -> None:
        """`settings`: of all brokers, or of the broker with this id."""
        self.world = World(seed)
        self.network = Network(self.world)
        self._settings = settings
        self._voters = ",".join(f"{each}@node-{each}:{CONTROLLER_PORT}" for each in range(1, nodes + 1))
        self.brokers = {each: self._new_broker(each) for each in range(1, nodes + 1)}
        self.clients: list[Process] = []
        self._handler = _Timeline(self.world)

    def _new_broker(self, node_id: int, **more: str) -> Broker:
        own = self._settings(node_id) if callable(self._settings) else self._settings or {}
        return Broker(self, node_id, {**_settings(node_id, self._voters), **own, **more})

    def add_broker(self, node_id: int) -> Broker:
        """One more, without a vote and with an empty disk. It is to be started."""
        broker = self._new_broker(node_id, **{"process.roles": "broker"})
        self.brokers[node_id] = broker
        return broker

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(each.name, CLIENT_PORT) for each in self.brokers.values()]

    def __enter__(self) -> Cluster:
        self._handler.install()
        return self

    def __exit__(self, *_: object) -> None:
        self._handler.remove()
        with _quiet_end():
            for broker in self.brokers.values():
                self._end(broker.process)
            for client in self.clients:
                self._end(client)
            for task in self.network.graveyard:
                _close(task.get_coro())
            self.network.graveyard.clear()
            gc.collect(1)

    def _end(self, process: Process | None) -> None:
        if process is not None and process.is_alive:
            process.die()

    def start(self, *, seconds_max: float = 60.0) -> None:
        """Returns when all brokers serve."""
        for broker in self.brokers.values():
            broker.start()
        self.run_until(lambda: all(each.is_ready for each in self.brokers.values()), seconds_max=seconds_max)

    def new_client(self, name: str = "") -> Process:
        """A machine for a client's code: `client.spawn(coroutine)`."""
        machine = Machine(self.world, self.network, name or f"client-{len(self.clients) + 1}")
        client = machine.start_process()
        self.clients.append(client)
        return client

    def run(self, seconds: float) -> None:
        self.world.run(until=self.world.now + seconds)

    def run_until(self, done: Callable[[], bool], *, seconds_max: float) -> None:
        self.world.run(until=self.world.now + seconds_max, done=done)
        if not done():
            raise OutOfTime(f"not within {seconds_max:g} virtual seconds")

    def call(self, coroutine: Coroutine[Any, Any, T], *, seconds_max: float = 60.0) -> T:
        """Runs a client's coroutine to its end, on a machine of its own."""
        task = self.new_client().spawn(coroutine)
        self.run_until(task.done, seconds_max=seconds_max)
        return task.result()


def _settings(node_id: int, voters: str) -> dict[str, str]:
    return {
        **DEFAULTS,
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://node-{node_id}:{CLIENT_PORT},CONTROLLER://node-{node_id}:{CONTROLLER_PORT}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "log.dirs": f"/node-{node_id}/data",
    }


class _Timeline(logging.Handler):
    """What brokers log, told in the world's time."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._logger = logging.getLogger("tidemark")
        self._before = (self._logger.level, self._logger.propagate)

    def install(self) -> None:
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False

    def remove(self) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before[0])
        self._logger.propagate = self._before[1]

    def emit(self, record: logging.LogRecord) -> None:
        process = current()
        if isinstance(process, Process) and process.world is self._world and process.is_alive:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += f" ({record.exc_info[1]!r})"
            self._world.note(process.machine.name, f"{record.levelname.lower()} {text}")


@contextlib.contextmanager
def _quiet_end() -> Iterator[None]:
    """What is left of killed processes is thrown away in the middle of what it did, and may say so."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        logging.disable(disabled)


def _close(coroutine: Any) -> None:
    """Its `finally` and `except` run, in a process that is dead: they reach nothing."""
    for _ in range(CLOSED_TIMES_MAX):
        try:
            coroutine.close()
            return
        except BaseException:  # it waits for something else now
            continue
