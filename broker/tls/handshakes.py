"""The handshakes under way on one event loop: their costly steps run on a thread, a few at a time.

A signature takes OpenSSL up to a millisecond, in which it lets go of the interpreter. A flood of handshakes fills the
queue here, and the clients that are served already do not notice it. How many there may be is limited, in all and for
one host; how fast they are worked off, by the one thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from tidemark.broker.tls.layer import RECEIVE_BYTES, WRITE_BYTES
from tidemark.environment import new_executor

if TYPE_CHECKING:
    from tidemark.broker.tls.layer import TlsLayer

THREADS: Final = 1
UNDER_WAY_MAX: Final = 1024  # on all listeners of a node
PER_HOST_MAX: Final = 256  # so that one host that opens connections and is silent cannot keep all others out


class Handshakes:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))  # what arrives, of all connections, still encrypted
        self.plain_buffer = memoryview(bytearray(WRITE_BYTES))  # what is about to be encrypted, of any one
        self._waiting: deque[TlsLayer] = deque()
        self._running = 0
        self._under_way: dict[TlsLayer, str] = {}
        self._per_host: Counter[str] = Counter()
        self._threads = new_executor(THREADS, name="tls")

    def begin(self, layer: TlsLayer, host: str) -> bool:
        """Whether there is room for one more."""
        if len(self._under_way) >= UNDER_WAY_MAX or self._per_host[host] >= PER_HOST_MAX:
            return False
        self._under_way[layer] = host
        self._per_host[host] += 1
        return True

    def run(self, layer: TlsLayer) -> None:
        """Work on the next step of a handshake, when it is its turn."""
        self._waiting.append(layer)
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._running < THREADS:
            layer = self._waiting.popleft()
            self._running += 1
            step = self.loop.run_in_executor(self._threads, layer.do_step)
            step.add_done_callback(lambda done, layer=layer: self._stepped(layer, done))  # type: ignore[misc]

    def _stepped(self, layer: TlsLayer, done: asyncio.Future[bool]) -> None:
        self._running -= 1
        error = None if done.cancelled() else done.exception()
        layer.stepped(not done.cancelled() and error is None and done.result(), error)
        self._start_next()

    def forget(self, layer: TlsLayer) -> None:
        """It is done, or its connection has ended."""
        host = self._under_way.pop(layer, None)
        if host is None:
            return
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        if layer in self._waiting:
            self._waiting.remove(layer)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
