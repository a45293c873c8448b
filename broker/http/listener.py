"""The sockets that serve HTTP, and their connections: how many, how much they may hold in memory, how they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tidemark import portable
from tidemark.broker.config import BrokerConfig, Listener
from tidemark.broker.core.background_work import BackgroundTurns
from tidemark.broker.core.limited_log import LimitedLog
from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.core.owners import Owner, Owners
from tidemark.broker.core.sliced_work import SlicedWork
from tidemark.broker.http.connection import PART_BYTES, Application, HttpConnection
from tidemark.broker.http.fair_turns import FairTurns
from tidemark.broker.http.held_answers import HeldAnswers
from tidemark.broker.quotas.connections import AT_ONCE, Admission
from tidemark.broker.server.listening_socket import close_listening, listening_socket
from tidemark.broker.server.waiting_turns import WaitingTurns
from tidemark.environment import monotonic, wall_clock_ms

if TYPE_CHECKING:
    from tidemark.broker.quotas.connections import ConnectionRates
    from tidemark.broker.server.crowd import CrowdSelector
    from tidemark.broker.tls.endpoints import TlsEndpoints

log = logging.getLogger(__name__)

SCRATCH_BYTES: Final = 64 << 10
LARGE_BODIES_MAX: Final = 4  # that are read at once: as Python's values JSON takes up to twenty times its bytes
BACKLOG: Final = 128  # connections that wait to be accepted
SWEEP_SECONDS_MAX: Final = 1.0
DESCRIPTORS_SHARE: Final = 0.97  # of the process's: more than Kafka's clients get, so that health can be asked for
DRAIN_SECONDS_MAX: Final = 2.0
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class HttpListener:
    def __init__(self, config: BrokerConfig, application: Application, *, tls: TlsEndpoints | None = None) -> None:
        self.application = application
        self.body_bytes_max = config.http_request_max_bytes
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))  # nothing is kept in it: connections share it
        self.held = HeldAnswers(config.http_queued_max_bytes)
        self.large_bodies = FairTurns(LARGE_BODIES_MAX)
        self.endpoints: dict[str, tuple[str, int]] = {}
        self._config = config
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        # In a turn of the loop one socket is read, or one request worked at, or a slice of long work done: Kafka's
        # clients wait for one such step at most.
        self._work: SlicedWork | None = getattr(self._loop, "background_work", None)
        self._selector: CrowdSelector | None = getattr(self._loop, "selector", None)
        self._steps = BackgroundTurns() if self._selector is None else self._selector.background_turns
        self._turns = WaitingTurns(
            self._loop, seconds=0.0, is_busy=self._has_work, is_taken=lambda: self._steps.next_is_taken
        )
        self._log = LimitedLog(log, clock=self._loop.time)
        self._seconds_max = config.http_request_timeout_ms / 1000
        self._servers: list[asyncio.Server] = []
        self._connections: OrderedSet[HttpConnection] = OrderedSet()
        self._owners: Owners[HttpConnection] = Owners()  # addresses, with the bytes of their requests' bodies
        self.body_bytes = 0
        self.rates: ConnectionRates | None = None  # how fast clients may connect, once the node serves
        self._closing = False
        self._emptied = asyncio.Event()
        self._sweeping: asyncio.TimerHandle | None = None
        self._date = (0, "")

    async def open(self, listeners: Sequence[Listener]) -> None:
        for each in listeners:
            await self._open(each)
        self._schedule_sweep()

    async def _open(self, listener: Listener) -> None:
        sock = listening_socket(listener.host, listener.port, self._config)
        # Accepted sockets inherit it: a reader that is slow gets so much ahead, not megabytes in the system's memory.
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, PART_BYTES)
        acceptor = None if self._tls is None else self._tls.acceptor(listener.name)

        def accept() -> asyncio.BufferedProtocol:
            connection = HttpConnection(self, listener.name)
            return connection if acceptor is None else acceptor.layer(connection, connection)

        # In a turn of the loop asyncio accepts as many connections as it thinks may wait: one.
        self._servers.append(await self._loop.create_server(accept, sock=sock, backlog=1))
        sock.listen(BACKLOG)
        self.endpoints[listener.name] = (listener.host, sock.getsockname()[1])

    # -- turns -------------------------------------------------------------

    def begin(self, answer: Callable[[], None], *, at_once: bool) -> None:
        """Call `answer`, which begins to answer a request, when it is its turn; or `at_once`, if no other's is."""
        if not at_once or self._turns.is_waiting or self._has_work() or self._steps.next_is_taken:
            self._turns.add(answer)
        else:
            answer()

    def go_on_in_turn(self, future: asyncio.Future[Any], value: Any) -> None:
        """Set a future's result when it is its turn: of a thousand who waited for the same record, or for the same
        replica, one goes on in each turn."""

        def go_on() -> None:
            if not future.done():
                self.has_begun()
                future.set_result(value)

        self._turns.add(go_on)

    def has_begun(self) -> None:
        """A request, whose first step is in the next turn."""
        self._steps.take_next()

    def _has_work(self) -> bool:
        return self._work is not None and self._work.is_busy

    # -- connections ask these ---------------------------------------------

    def owner(self, host: str) -> Owner[HttpConnection]:
        """Whose a new connection is: a user is not known before its first request."""
        return self._owners.named(host)

    def register(self, connection: HttpConnection) -> bool:
        """False: there is no room for it."""
        refusal = None if self._closing else self._why_refused(connection)
        self._connections.add(connection)
        self._owners.add(connection.owner, connection)
        if self._selector is not None and connection.descriptor >= 0:
            self._selector.put_behind(connection.descriptor, is_busy=self._has_work)
        if refusal is not None:
            self._log.warning("refused an HTTP connection from %s: %s", connection.peer, refusal)
        return refusal is None and not self._closing

    def _why_refused(self, connection: HttpConnection) -> str | None:
        if portable.is_scarce(connection.descriptor, share=DESCRIPTORS_SHARE):
            return "nearly as many files and connections are open as may be (ulimit -n)"
        limit = self._config.http_max_connections
        if len(self._connections) < limit or self._makes_way(connection.owner):
            return None
        return f"http.max.connections={limit}"

    def _makes_way(self, newcomer: Owner[HttpConnection]) -> bool:
        """Whoever has most connections gives up one: that is idle for longest, or else was not used for longest."""
        most = self._owners.with_most(newcomer)
        if most is None or most is newcomer:
            return False
        left = [each for each in most.items if not each.is_closing]
        for each in (*(each for each in left if each.is_unused), *left):
            each.abort()
            return True
        return False

    def admit(self, connection: HttpConnection) -> Admission:
        """When a new connection is read from, or that it is not."""
        return AT_ONCE if self.rates is None else self.rates.admit(connection.listener, connection.host, monotonic())

    def forget(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        self._owners.remove(connection.owner, connection)
        if self._selector is not None:
            self._selector.forget_behind(connection.descriptor)
        if not self._connections:
            self._emptied.set()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def reserve(self, owner: Owner[HttpConnection], size_bytes: int) -> bool:
        """Count bytes of a body, if there is room for them; or if whoever has more of them gives up one that is still
        arriving."""
        while self.body_bytes + size_bytes > self._config.http_queued_max_bytes:
            most = self._owners.largest(owner, size_bytes)
            longest = None if most is None else max(most.items, key=lambda each: each.arrived_bytes)
            if longest is None or not longest.arrived_bytes:
                return False
            longest.refuse_body()
        self.body_bytes += size_bytes
        owner.size += size_bytes
        return True

    def release(self, owner: Owner[HttpConnection], size_bytes: int) -> None:
        self.body_bytes -= size_bytes
        owner.size -= size_bytes

    @property
    def is_closing(self) -> bool:
        return self._closing

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call)

    def deadline(self, *, seconds_max: float | None = None) -> float:
        return self._loop.time() + (self._seconds_max if seconds_max is None else seconds_max)

    def date(self) -> str:
        second = wall_clock_ms() // 1000
        if second != self._date[0]:
            moment = datetime.fromtimestamp(second, UTC)
            day, month = DAYS[moment.weekday()], MONTHS[moment.month - 1]
            self._date = (second, f"{day}, {moment.day:02} {month} {moment.year} {moment:%H:%M:%S} GMT")
        return self._date[1]

    def _schedule_sweep(self) -> None:
        self._sweeping = self._loop.call_later(min(self._seconds_max / 4, SWEEP_SECONDS_MAX), self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self._connections):
            connection.sweep(now)
        self._schedule_sweep()

    # -- the end -----------------------------------------------------------

    async def close(self) -> None:
        """No new connection; what is under way has a moment to come to its end."""
        self._closing = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for server in self._servers:
            close_listening(server)
        for connection in list(self._connections):
            connection.close_when_quiet()
        if self._connections:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS_MAX):
                    await self._emptied.wait()
        for connection in list(self._connections):
            connection.abort()
        for _ in range(3):
            await asyncio.sleep(0)
