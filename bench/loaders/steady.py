"""One record after another at an even rate, acks=all and no linger: how long every acknowledgement took.

It behaves as clients do: a record leaves at once in a request of its own, unless five requests are under way; then it
waits, and what has gathered leaves in one batch with the next answer. A record's clock starts when it is handed over,
whatever has become of those before it, so a broker that stands still is seen by all that came meanwhile; this process's
own lateness is told apart (`late_ms`), and so are the records in whose time the hypervisor took nothing of the
processors (`calm_…`). It ends when its input has a line or ends.
"""

import contextlib
import gc
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from bench import produce_wire
from bench.calm import StolenTime
from bench.loaders.process import serve

PATIENCE_S = 60.0
IN_FLIGHT = 5  # the Java client's default, and the most that an idempotent producer may have
BATCH_MAX = 500
PRIORITY = -10  # where the system allows it: a loader that waits for a core is no delay of the broker's
RECEIVE_BYTES = 1 << 16
CALM_MIN = 2_000  # records: the slowest thousandth of fewer says nothing


class SteadyProducer:
    def __init__(self, address: tuple[str, int], *, topic: str, size: int, rate: float) -> None:
        self._sock = socket.create_connection(address, timeout=PATIENCE_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setblocking(False)
        self._topic, self._size, self._rate = topic, size, rate
        self.stolen = StolenTime()
        self._frames: dict[int, bytearray] = {}
        self._inbox, self._outbox = bytearray(), bytearray()
        self._waiting: deque[float] = deque()  # when each record was handed over
        self._under_way: deque[list[float]] = deque()  # the same, for each request
        self.took: list[float] = []
        self.ended: list[float] = []  # when, for each of these
        self.late: list[float] = []

    def close(self) -> None:
        self._sock.close()

    def run(self, *, seconds: float, until: int | None) -> None:
        """For so long, or until the file descriptor `until` is readable; then waits for what is not answered yet."""
        self.took.clear(), self.ended.clear(), self.late.clear()
        self.stolen = StolenTime()
        begun, sources = time.perf_counter(), [self._sock.fileno(), *([] if until is None else [until])]
        while (now := time.perf_counter()) < begun + seconds:
            while (due := begun + len(self.late) / self._rate) <= now:
                self._waiting.append(now)
                self.late.append(now - due)
            self._send()
            self.stolen.mark(now)
            if until in self._wait(sources, due - now):
                break
        deadline = time.perf_counter() + PATIENCE_S
        while len(self.took) < len(self.late):
            self._wait(sources[:1], 1.0)
            self.stolen.mark(time.perf_counter())
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{len(self.late) - len(self.took)} records were not acknowledged")

    def _send(self) -> None:
        while self._waiting and len(self._under_way) < IN_FLIGHT:
            count = min(len(self._waiting), BATCH_MAX)
            self._under_way.append([self._waiting.popleft() for _ in range(count)])
            self._outbox += self._request(count)
        self._flush()

    def _request(self, records: int) -> bytearray:
        """Made once for each number of records: nothing in it says when or after what it is sent."""
        if records not in self._frames:
            batch = produce_wire.batch_of(records=records, size=self._size)
            self._frames[records] = produce_wire.request(batch, topic=self._topic, partition=0, acks=-1)
        return self._frames[records]

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
        for _ in range(produce_wire.take_answers(self._inbox, topic=self._topic)):  # in the order of the requests
            took = [now - handed_over for handed_over in self._under_way.popleft()]
            self.took += took
            self.ended += [now] * len(took)
        self._send()

    def calm(self) -> list[float]:
        """What those took in whose time nothing was taken from the machine."""
        is_calm = self.stolen.is_calm
        return [took for took, ended in zip(self.took, self.ended, strict=True) if is_calm(ended - took, ended)]


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


def told_of_calm(calm: list[float], *, records: int) -> dict[str, float]:
    told = {"calm_share": len(calm) / records}
    if len(calm) < CALM_MIN:
        return told
    ordered = sorted(calm)
    return told | {"calm_p99_ms": 1e3 * quantile(ordered, 0.99), "calm_p999_ms": 1e3 * quantile(ordered, 0.999)}


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
        told = told_of_calm(producer.calm(), records=len(producer.took))
        return summary(producer.took, producer.late) | told | {"stolen_share": producer.stolen.share}

    return work


if __name__ == "__main__":
    serve(prepare)
