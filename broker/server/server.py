"""Listening sockets and the connections they accept: which may connect, which are idle, how they are closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidemark import portable
from tidemark.broker.config import BrokerConfig, Listener
from tidemark.broker.core.histogram import Histogram
from tidemark.broker.core.limited_log import LimitedLog
from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.quotas.connections import Admission, ConnectionRates
from tidemark.broker.server.connection import Connection
from tidemark.broker.server.crowd import Turn
from tidemark.broker.server.listening_socket import close_listening, listening_socket
from tidemark.broker.server.request_memory import MemoryBudget
from tidemark.broker.server.waiting_turns import WaitingTurns
from tidemark.environment import monotonic, new_executor
from tidemark.protocol.frames import Scratch

if TYPE_CHECKING:
    from tidemark.broker.tls.endpoints import TlsEndpoints

log = logging.getLogger(__name__)

DRAIN_SECONDS_MAX: Final = 2.0  # what a client that does not read its answers can delay a shutdown
ACCEPT_TURNS: Final = 3  # of the event loop, until a connection that was accepted is one of ours, or one is closed
IDLE_CHECKS: Final = 10  # per connections.max.idle.ms, at least
SWEEP_SECONDS_MAX: Final = 3.0
# A client that is silent for so long in the middle of a request, or sends the rest at less than 64 KiB/s, is hung up
# on. Its own request.timeout.ms, 30 s by default, is over by then.
FRAME_SECONDS_MAX: Final = 30.0
# Requests other than Produce hold names and numbers: a fetch of 100,000 partitions has 4 MB.
SMALL_REQUEST_BYTES_MAX: Final = 8 << 20
PRODUCE_KEY: Final = 0
# Of the process's descriptors, clients' connections get so many: logs must be opened and the metadata saved meanwhile.
DESCRIPTORS_SHARE: Final = 0.75
# … if logs leave as many. Beyond this a client is told to go: one whose connection the broker cannot accept would hang.
DESCRIPTORS_SHARE_WITH_FILES: Final = 0.94
READ_THREADS: Final = 4


class Server:
    def __init__(
        self,
        config: BrokerConfig,
        handle: Callable[[Connection, bytearray], None],
        *,
        tls: TlsEndpoints | None = None,
    ) -> None:
        """`tls`: for the listeners that speak it."""
        self.loop = asyncio.get_running_loop()
        self.log = LimitedLog(log, clock=self.loop.time)  # of what clients do: any number of them, all the time
        self.scratch = Scratch()
        self.request_bytes_max = config.socket_request_max_bytes
        limit = config.queued_max_request_bytes
        # Two, so that clients cannot keep the controllers from hearing of each other.
        self.memory = MemoryBudget(limit if limit > 0 else 1 << 62)
        self.controller_memory = MemoryBudget(self.memory.limit_bytes)
        self.descriptors_max = int(portable.descriptor_limit() * DESCRIPTORS_SHARE)
        self.frame_seconds_max = FRAME_SECONDS_MAX
        self.readers = new_executor(READ_THREADS, name="send")  # of what is to be sent and is cold
        self.first_request_bytes_max: dict[str, int] = {}  # by listener: where logins come first, and less is taken
        self.tick = 0  # advances with every sweep: cheaper to note than the time
        self.turns = WaitingTurns(self.loop)
        self._crowd: set[int] = getattr(self.loop, "crowd", set())  # descriptors, if the loop tells clients apart
        self.turn: Turn = getattr(self.loop, "turn", Turn())
        self.endpoints: dict[str, tuple[str, int]] = {}
        self.slow_sends: dict[str, Histogram] = {}  # by API: of answers that a socket did not take at once
        self._config = config
        self.current_config: Callable[[], BrokerConfig] = lambda: config  # limits of connections may change
        self.rates = ConnectionRates(config)
        self._handle = handle
        self._tls = tls
        self._servers: dict[str, asyncio.Server] = {}
        self._lost: dict[str, Callable[[Connection], None]] = {}
        self._connections: OrderedSet[Connection] = OrderedSet()
        self._per_host: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()  # connections by listener, since the start
        self.refused: Counter[str] = Counter()
        self._closing = False
        self._emptied: asyncio.Event | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        idle_ms = config.connections_max_idle_ms
        self._sweep_seconds = min(idle_ms / 1000 / IDLE_CHECKS, SWEEP_SECONDS_MAX) if idle_ms > 0 else SWEEP_SECONDS_MAX
        self._idle_ticks = idle_ms / 1000 / self._sweep_seconds if idle_ms > 0 else float("inf")

    async def listen(
        self,
        listener: Listener,
        *,
        handle: Callable[[Connection, bytearray], None] | None = None,
        lost: Callable[[Connection], None] | None = None,
    ) -> tuple[str, int]:
        """Open one listener; returns the address it really has (its port may have been 0).

        `handle`: if its requests are not for clients' handlers. `lost` is called with each connection that ends.
        """
        handle = handle or self._handle
        if lost is not None:
            self._lost[listener.name] = lost
        sock = listening_socket(listener.host, listener.port, self._config)
        server = await self.loop.create_server(
            self._protocol_factory(listener, handle),
            sock=sock,
            backlog=self._config.socket_listen_backlog_size,
            start_serving=False,
        )
        self._servers[listener.name] = server
        self.endpoints[listener.name] = address = (listener.host, sock.getsockname()[1])
        return address

    def _protocol_factory(
        self, listener: Listener, handle: Callable[[Connection, bytearray], None]
    ) -> Callable[[], asyncio.BufferedProtocol]:
        acceptor = None if self._tls is None else self._tls.acceptor(listener.name)
        if acceptor is None:
            return lambda: Connection(self, listener.name, handle)

        def accept() -> asyncio.BufferedProtocol:
            connection = Connection(self, listener.name, handle)
            return acceptor.layer(connection, connection)

        return accept

    async def serve(self, listener: str | None = None) -> None:
        """Accept connections: on one listener, or on all that do not yet."""
        for name, server in self._servers.items():
            if listener in (None, name):
                await server.start_serving()
        if self._sweeping is None:
            self._schedule_sweep()

    # -- connections ask these ---------------------------------------------

    def register(self, connection: Connection) -> str | None:
        """Count a new connection, or say why it is refused."""
        config = self.current_config()
        refusal = None
        if self._closing:  # it was accepted in the moment in which we hung up on all others
            refusal = "the broker stops"
        elif len(self._connections) >= config.max_connections:
            refusal = f"max.connections={config.max_connections} is reached"
        elif len(self._connections) >= self.descriptors_max and not self._is_controllers(connection.listener):
            refusal = f"{self.descriptors_max} are open, and other files need descriptors, too (ulimit -n)"
        elif portable.is_scarce(connection.descriptor, share=DESCRIPTORS_SHARE_WITH_FILES):
            refusal = "nearly as many files and connections are open as may be (ulimit -n)"
        elif self._per_host[connection.host] >= (limit := _limit_of(connection.host, config)):
            refusal = f"max.connections.per.ip={limit} is reached"
        self._connections.add(connection)
        self._per_host[connection.host] += 1
        (self.accepted if refusal is None else self.refused)[connection.listener] += 1
        return refusal

    def turns_of(self, listener: str) -> Callable[[Callable[[], None]], object]:
        """How a connection of this listener gets its next turn: nodes do not wait for clients."""
        return self.loop.call_soon if self._is_controllers(listener) else self.turns.add

    def join_crowd(self, connection: Connection) -> None:
        """Its requests can wait for those of nodes."""
        if not self._is_controllers(connection.listener):
            connection.descriptor = connection.transport.get_extra_info("socket").fileno()
            self._crowd.add(connection.descriptor)

    def leave_crowd(self, connection: Connection) -> None:
        self._crowd.discard(connection.descriptor)

    def note_slow_send(self, api: str, seconds: float) -> None:
        """It took so long until an answer was sent."""
        if (found := self.slow_sends.get(api)) is None:
            found = self.slow_sends[api] = Histogram()
        found.observe(seconds)

    def admit(self, connection: Connection) -> Admission:
        """When a new connection is read from, or that it is not."""
        return self.rates.admit(connection.listener, connection.host, monotonic())

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.leave_crowd(connection)
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]
        if connection.listener in self._lost:
            self._lost[connection.listener](connection)
        if self._emptied is not None and not self._connections:
            self._emptied.set()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def connections(self) -> list[Connection]:
        return list(self._connections)

    def memory_of(self, listener: str) -> MemoryBudget:
        return self.controller_memory if self._is_controllers(listener) else self.memory

    def limit_of(self, listener: str) -> Callable[[int], int] | None:
        """How long a request may be, by its API key. What controllers tell each other needs no other limit."""
        return None if self._is_controllers(listener) else self._limit_of_request

    def _is_controllers(self, listener: str) -> bool:
        return listener in self._config.controller_listener_names

    def _limit_of_request(self, key: int) -> int:
        return self.request_bytes_max if key == PRODUCE_KEY else SMALL_REQUEST_BYTES_MAX

    def _schedule_sweep(self) -> None:
        self._sweeping = self.loop.call_later(self._sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        self.tick += 1
        for connection in list(self._connections):
            connection.sweep(tick_seconds=self._sweep_seconds, seconds_max=self.frame_seconds_max)
            if connection.active_tick + self._idle_ticks < self.tick and not connection.is_waiting_for_us:
                connection.expire()
        self.memory.relieve()
        self.controller_memory.relieve()
        self._schedule_sweep()

    # -- the end -----------------------------------------------------------

    def stop_accepting(self, *, but: str | None = None) -> None:
        """No new connection, no new request, except on the listener `but`; what was accepted goes on."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for name, server in self._servers.items():
            if name != but:
                self._stop_listening(server)
        for connection in list(self._connections):
            if connection.listener != but:
                connection.stop_reading()

    def _stop_listening(self, server: asyncio.Server) -> None:
        """In two steps: asyncio forgets, and leaves open, a socket whose server closes before its transport is made."""
        for listening in server.sockets:
            self.loop.remove_reader(listening.fileno())
        self.loop.call_soon(close_listening, server)

    async def close(self) -> None:
        """Let the answers out, then hang up on everyone."""
        self._closing = True
        for server in self._servers.values():
            self._stop_listening(server)
        await _turns(ACCEPT_TURNS)
        for connection in list(self._connections):
            connection.close_when_quiet()
        self._emptied = asyncio.Event()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS_MAX):
                    await self._emptied.wait()
        for connection in list(self._connections):
            connection.transport.abort()
        await _turns(ACCEPT_TURNS)
        self.readers.shutdown(wait=False, cancel_futures=True)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _limit_of(host: str, config: BrokerConfig) -> int:
    return config.parsed_max_connections_per_ip_overrides.get(host, config.max_connections_per_ip)
