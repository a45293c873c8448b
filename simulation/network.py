"""A network between simulated machines: connections as TCP makes them, over paths that are slow, cut or lossy.

What is sent while a path is cut is sent again, ever more seldom, as TCP does; a reset that is lost is lost. So a
connection may be half open, and stay silent for long after the network is well again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidemark.simulation.world import World

if TYPE_CHECKING:
    from tidemark.simulation.process import Machine, Process

RETRANSMIT_SECONDS: Final = 0.2
RETRANSMIT_SECONDS_MAX: Final = 120.0
BUFFER_BYTES: Final = 256 << 10  # what the systems on both sides keep of a connection
FIRST_PORT: Final = 40_000
_FIN: Final = None


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.new_random("network")
        self.machines: dict[str, Machine] = {}
        self.latency_seconds = 0.0002
        self.jitter_seconds = 0.0003
        self.bytes_per_second = 200e6
        self.cuts: set[tuple[str, str]] = set()  # (from, to)
        self.slow: dict[str, float] = {}  # extra seconds on the way to a machine
        self.endpoints: dict[int, Endpoint] = {}
        self.listening: dict[tuple[str, int], Listening] = {}
        self.graveyard: list[Any] = []  # of killed tasks: their code must not run, not even its end
        self._last_port = FIRST_PORT
        self._last_id = 0

    # Faults

    def cut(self, source: str, target: str) -> None:
        """One way."""
        self.cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        self.cuts.discard((source, target))

    def heal_all(self) -> None:
        self.cuts.clear()
        self.slow.clear()

    def passes(self, source: Machine, target: Machine) -> bool:
        return target.is_on and source.is_on and not (self.cuts and (source.name, target.name) in self.cuts)

    def delay(self, target: Machine, size: int = 0) -> float:
        seconds = self.latency_seconds + self.random.random() * self.jitter_seconds + size / self.bytes_per_second
        if self.slow and target.name in self.slow:
            seconds += self.slow[target.name] * self.random.random()
        return seconds

    def reset_some(self, machine: str, random: Any, share: float) -> None:
        """Some connections of a machine are reset, by a firewall or a router, say."""
        for endpoint in list(self.endpoints.values()):
            if endpoint.process.machine.name == machine and random.random() < share:
                endpoint.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
                endpoint.peer.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    # Connections

    def new_port(self) -> int:
        self._last_port += 1
        return self._last_port

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def connect(self, process: Process, host: str, port: int) -> Endpoint:
        """As a connect(2) does: three packets, the first of which is sent again until there is an answer."""
        target = self.machines.get(process.machine.name if host in ("localhost", "127.0.0.1") else host)
        if target is None:
            raise socket.gaierror(socket.EAI_NONAME, f"{host}: unknown host")
        retransmit = 1.0
        while True:
            await asyncio.sleep(self.delay(target))
            if self.passes(process.machine, target) and self.passes(target, process.machine):
                break
            await asyncio.sleep(retransmit)
            retransmit *= 2
            if retransmit > 64:
                raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")
        await asyncio.sleep(self.delay(process.machine))
        listening = self.listening.get((target.name, port))
        if listening is None or not listening.process.is_alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ('{host}', {port})")
        local = (process.machine.name, self.new_port())
        near = Endpoint(self, process, local, (host, port))
        far = Endpoint(self, listening.process, (host, port), local)
        near.peer, far.peer = far, near
        listening.accept(far)
        return near

    def process_died(self, process: Process, *, says_so: bool) -> None:
        for address in [each for each, listening in self.listening.items() if listening.process is process]:
            del self.listening[address]
        for endpoint in [each for each in self.endpoints.values() if each.process is process]:
            endpoint.vanish(says_so=says_so)

    def stop_accepting(self, process: Process, fd: int) -> None:
        for address, listening in list(self.listening.items()):
            if listening.process is process and listening.sock.fileno() == fd:
                del self.listening[address]


class SimulatedSocket:
    """As much of a socket as servers and transports show."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._address: tuple[str, int] = ("", 0)
        self._id = process.network.new_id()
        self.options: dict[tuple[int, int], Any] = {}
        self.is_bound = False

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self.options[level, option] = value

    def bind(self, address: tuple[str, int]) -> None:
        host, port = address
        port = port or self._process.network.new_port()
        used = self._process.network.listening.get((self._process.machine.name, port))
        if used is not None and used.process.is_alive:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._address = (host, port)
        self.is_bound = True

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def fileno(self) -> int:
        """Not a descriptor: a listening socket's name here; of a connection it is -1, and only bytes can be written."""
        return self._id if self.is_bound else -1

    def setblocking(self, _flag: bool) -> None: ...

    def shutdown(self, _how: int) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> SimulatedSocket:
        return self

    def __exit__(self, *_: object) -> None: ...


class Listening:
    """As `asyncio.Server`."""

    def __init__(self, process: Process, sock: SimulatedSocket, factory: Callable[[], Any]) -> None:
        self.process = process
        self.sock = sock
        self._factory = factory
        self._address = (process.machine.name, sock.getsockname()[1])

    @property
    def sockets(self) -> list[SimulatedSocket]:
        return [self.sock]

    async def start_serving(self) -> None:
        self.process.network.listening[self._address] = self

    def accept(self, endpoint: Endpoint) -> None:
        """The system has accepted it; the process hears of it when it has its turn."""
        self.process.post(lambda: endpoint.attach(self._factory()))

    def close(self) -> None:
        if self.process.network.listening.get(self._address) is self:
            del self.process.network.listening[self._address]

    async def wait_closed(self) -> None: ...

    def is_serving(self) -> bool:
        return self.process.network.listening.get(self._address) is self

    async def __aenter__(self) -> Listening:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Endpoint(asyncio.Transport):
    """One end of a connection."""

    peer: Endpoint

    def __init__(self, network: Network, process: Process, local: tuple[str, int], remote: tuple[str, int]) -> None:
        super().__init__()
        self.network = network
        self.world = network.world
        self.process = process
        self.id = network.new_id()
        self.sock = SimulatedSocket(process)
        self._addresses = local, remote
        self._protocol: Any = None
        self._is_buffered = False
        self._flight: deque[tuple[float, bytes | None]] = deque()  # when it arrives there, if nothing is in its way
        self._outstanding = 0  # bytes in flight, or there and not yet read
        self._received: deque[bytes | None] = deque()
        self._last_arrival = 0.0
        self._delivery: Any = None
        self._retransmit = RETRANSMIT_SECONDS
        self._unacknowledged_since: float | None = None
        self._high = 64 << 10
        self._is_paused = False  # our protocol was told to write no more
        self._reading = True
        self._is_receiving = False
        self._closing = False
        self._lost = False
        self._probing: Any = None
        self.is_gone = False  # the process that had it is dead
        network.endpoints[self.id] = self

    # What a transport offers

    def attach(self, protocol: Any) -> None:
        self.set_protocol(protocol)
        protocol.connection_made(self)
        if self.sock.options.get((socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
            self._probe()
        self._read()

    def get_extra_info(self, name: str, default: Any = None) -> object:
        if name == "socket":
            return self.sock
        return {"sockname": self._addresses[0], "peername": self._addresses[1]}.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, self._outstanding - BUFFER_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, self._high

    def write(self, data: Any) -> None:
        if self._closing or self._lost or not data:
            return
        data = bytes(data)
        self._outstanding += len(data)
        self._send(data)
        if self._outstanding > BUFFER_BYTES + self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._received:
            self.process.post(self._read)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send(_FIN)
            self._reading = False
            self.process.post(self._lose, None)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self._flight.clear()
            self._reset_peer()
            self.process.post(self._lose, None)

    # Sending

    def _send(self, data: bytes | None) -> None:
        size = 0 if data is None else len(data)
        arrival = self.world.now + self.network.delay(self.peer.process.machine, size)
        if arrival < self._last_arrival:
            arrival = self._last_arrival
        self._last_arrival = arrival
        self._flight.append((arrival, data))
        if self._delivery is None:
            self._delivery = self.world.at(arrival, self._deliver)

    def _deliver(self) -> None:
        self._delivery = None
        flight, peer, network, world = self._flight, self.peer, self.network, self.world
        if not flight or self.is_gone:
            return
        here, there = self.process.machine, peer.process.machine
        is_clear = not network.cuts and here.is_on and there.is_on  # both ways, as nearly always
        if not is_clear and not network.passes(here, there):
            self._stalled()
            return
        if peer.is_gone or (peer._lost and not peer._closing):
            flight.clear()
            world.after(network.delay(here), partial(self._reset_by, there))
            return
        self._retransmit = RETRANSMIT_SECONDS
        now, received = world.now, peer._received
        while flight and flight[0][0] <= now:
            data = flight.popleft()[1]
            world.trace_sent(self.id, data or b"")
            received.append(data)
        if is_clear or network.passes(there, here):
            self._unacknowledged_since = None
        else:
            self._stalled(resend=False)
        if flight and self._delivery is None:
            self._delivery = world.at(flight[0][0], self._deliver)
        peer._arrived()

    def _stalled(self, *, resend: bool = True) -> None:
        """Nothing is acknowledged. A limit for that ends the connection."""
        if self._unacknowledged_since is None:
            self._unacknowledged_since = self.world.now
        limit_ms = self.sock.options.get((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), 0)
        if limit_ms and self.world.now - self._unacknowledged_since >= limit_ms / 1000:
            self.fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            return
        pause, self._retransmit = self._retransmit, min(self._retransmit * 2, RETRANSMIT_SECONDS_MAX)
        if limit_ms:
            pause = min(pause, limit_ms / 1000)
        self._delivery = self.world.after(pause, self._deliver if resend else self._check_acknowledged)

    def _check_acknowledged(self) -> None:
        self._delivery = None
        if self.network.passes(self.peer.process.machine, self.process.machine):
            self._unacknowledged_since = None
            self._deliver()
        elif not self._lost:
            self._stalled(resend=bool(self._flight))

    def _probe(self) -> None:
        """Keep-alive: a peer that is silent and does not answer probes is given up."""
        options = self.sock.options
        idle = options.get((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 7200)
        every = options.get((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 75)
        count = options.get((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 9)
        self._probing = self.world.after(idle, partial(self._probe_again, idle, every, count, count))

    def _probe_again(self, idle: float, every: float, count: int, left: int) -> None:
        if self._lost or self.is_gone:
            return
        here, there = self.process.machine, self.peer.process.machine
        reaches = self.network.passes(here, there) and self.network.passes(there, here)
        if reaches and self.peer.is_gone:
            self._reset_by(there)
        elif reaches:
            self._probing = self.world.after(idle, partial(self._probe_again, idle, every, count, count))
        elif left:
            self._probing = self.world.after(every, partial(self._probe_again, idle, every, count, left - 1))
        else:
            self.fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def _reset_peer(self) -> None:
        """A reset is sent once: if it is lost, the other side does not hear of it."""
        here, peer = self.process.machine, self.peer
        self.world.after(self.network.delay(peer.process.machine), partial(peer._reset_by, here))

    def _reset_by(self, source: Machine) -> None:
        if self.network.passes(source, self.process.machine):
            self.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def vanish(self, *, says_so: bool) -> None:
        """Its process is dead. The system resets the connection, unless the machine is dead, too."""
        self.is_gone = self._lost = self._closing = True
        self.network.endpoints.pop(self.id, None)
        if says_so:
            self._reset_peer()

    def fail(self, error: OSError) -> None:
        if not self._lost and not self.is_gone:
            self._closing = True
            self._flight.clear()
            self.process.post(self._lose, error)

    # Receiving

    def _arrived(self) -> None:
        process = self.process
        if self._protocol is not None and self._reading and not self._is_receiving and process.is_alive:
            self._is_receiving = True
            process.loop.call_from_outside(self._receive)

    def _receive(self) -> None:
        self._is_receiving = False
        self._read()

    def _read(self) -> None:
        while self._received and self._reading and not self._lost and self._protocol is not None:
            data = self._received.popleft()
            if data is _FIN:
                if not self._protocol.eof_received():
                    self.close()
                return
            self.peer._was_read(self._hand_over(data))

    def _hand_over(self, data: bytes) -> int:
        """How much of it the protocol took before it wanted no more."""
        protocol = self._protocol
        if not self._is_buffered:
            protocol.data_received(data)
            return len(data)
        size = len(data)
        buffer = protocol.get_buffer(-1)
        if size <= len(buffer):  # nearly always
            buffer[:size] = data
            protocol.buffer_updated(size)
            return size
        view = memoryview(data)
        while True:
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            view = view[size:]
            protocol.buffer_updated(size)
            if not view or self._lost:
                return len(data)
            if not self._reading:
                self._received.appendleft(bytes(view))
                return len(data) - len(view)
            buffer = protocol.get_buffer(-1)

    def _was_read(self, size: int) -> None:
        self._outstanding -= size
        if self._is_paused and self._outstanding <= BUFFER_BYTES and not self._lost:
            self._is_paused = False
            self.process.post(self._resume)

    def _resume(self) -> None:
        if not self._lost:
            self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self.network.endpoints.pop(self.id, None)
        if self._probing is not None:
            self._probing.cancel()
        if self._protocol is not None:
            self._protocol.connection_lost(error)
