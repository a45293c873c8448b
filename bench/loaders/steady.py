"""One record after another at an even rate, each in a request of its own: how long every acknowledgement took.

Records are sent when they are due, whether or not the ones before have been answered, so a broker that stands still
is seen by all that were due meanwhile. The clock of a record starts when it is sent: this process's own lateness is
told apart (`late_ms`). It ends when its input has a line or ends.
"""

import contextlib
import gc
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from bench import produce_wire
from bench.loaders.process import serve

PATIENCE_S = 60.0
PRIORITY = -10  # where the system allows it: a loader that waits for a core is no delay of the broker's
RECEIVE_BYTES = 1 << 16


class SteadyProducer:
    def __init__(self, address: tuple[str, int], *, topic: str, size: int, rate: float) -> None:
        self._sock = socket.create_connection(address, timeout=PATIENCE_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setblocking(False)
        self._topic, self._rate = topic, rate
        batch = produce_wire.batch_of(records=1, size=size)
        self._frame = produce_wire.request(batch, topic=topic, partition=0, acks=-1)
        self._inbox, self._outbox = bytearray(), bytearray()
        self._sent_at: list[float] = []
        self.took: list[float] = []
        self.late: list[float] = []

    def run(self, *, seconds: float, until: int | None) -> None:
        """For so long, or until the file descriptor `until` is readable; then waits for what is not answered yet."""
        self._sent_at.clear(), self.took.clear(), self.late.clear()
        begun, sources = time.perf_counter(), [self._sock.fileno(), *([] if until is None else [until])]
        while (now := time.perf_counter()) < begun + seconds:
            while (due := begun + len(self._sent_at) / self._rate) <= now:
                self._send(now)
                self.late.append(now - due)
            if until in self._wait(sources, due - now):
                break
        deadline = time.perf_counter() + PATIENCE_S
        while len(self.took) < len(self._sent_at):
            self._wait(sources[:1], 1.0)
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{len(self._sent_at) - len(self.took)} records were not acknowledged")

    def _send(self, now: float) -> None:
        struct.pack_into(">i", self._frame, produce_wire.CORRELATION_AT, len(self._sent_at))
        self._sent_at.append(now)
        self._outbox += self._frame
        self._flush()

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._outbox:
                del self._outbox[: self._sock.send(self._outbox)]

    def _wait(self, sources: list[int], seconds: float) -> list[int]:
        """What became readable. select() and not epoll: its time-outs are not whole milliseconds."""
        writing = sources[:1] if self._outbox else []
        readable, writable, _ = select.select(sources, writing, [], max(0.0, seconds))
        if writable:
            self._flush()
        if sources[0] in readable:
            self._receive()
        return readable

    def _receive(self) -> None:
        data = self._sock.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("closed by the broker")
        self._inbox += data
        now = time.perf_counter()
        for number in produce_wire.take_answers(self._inbox, topic=self._topic):
            assert number == len(self.took), "answers come in the order of the requests"
            self.took.append(now - self._sent_at[number])


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def summary(took: list[float], late: list[float]) -> dict[str, float]:
    ordered = sorted(took)
    return {
        "records": len(ordered),
        "p50_ms": 1e3 * quantile(ordered, 0.5),
        "p99_ms": 1e3 * quantile(ordered, 0.99),
        "p999_ms": 1e3 * quantile(ordered, 0.999),
        "max_ms": 1e3 * ordered[-1],
        "late_ms": 1e3 * quantile(sorted(late), 0.999),
    }


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    with contextlib.suppress(OSError):
        os.nice(PRIORITY)
    host, port = parameters["address"]
    producer = SteadyProducer(
        (host, int(port)), topic=parameters["topic"], size=int(parameters["size"]), rate=float(parameters["rate"])
    )
    producer.run(seconds=float(parameters["warm_up_s"]), until=None)
    gc.disable()

    def work() -> dict[str, Any]:
        producer.run(seconds=float(parameters["seconds_max"]), until=sys.stdin.fileno())
        return summary(producer.took, producer.late)

    return work


if __name__ == "__main__":
    serve(prepare)
