"""HTTP and JSON, on one broker: `python -m bench.http_rates [--quick] [--rounds 3] [--seconds 8] [--pinned] [--idle]
[--realtime] [--paced 3000,1000] [--lean]`.

A broker process and a loader with 50 connections, each with one request under way: 1 KB produced singly and in batches
of 100, and a topic read as a stream of lines. Beside them a Kafka client produces 100 B at a time and waits for each
answer. The same client alone comes first, and then beside two processes that only burn their processors, while the
broker has nothing else to do: what the machine makes of three busy processes on two processors.

The client is also measured "elsewhere": the same load of HTTP goes to another broker, and the Kafka client has its own
to itself. What the neighbour of singles or batches waits for beyond that is the doing of the broker that serves both;
the rest is that of processors which are busy. How much of their time the hypervisor took away is told, too
(stolen_pct), and the latencies in tenths of seconds in which it took nothing (calm_…): where it is some percent, the
slowest hundredth is made of nothing else.

With --pinned the broker has a processor to itself, and the clients share another. With --idle the loader runs only when
nobody else wants its processor (SCHED_IDLE); otherwise it is nice, and since Linux 6.6 finishes its slice of
milliseconds before the Kafka client gets its turn. With --realtime (root only) the broker and the Kafka client run
whenever they want to (SCHED_FIFO), and the loader before all others: what the client waits for is the broker, also on a
busy machine. With --paced single records come at these rates, too, at even intervals: what is left of a wait at a rate
that the broker and the loader could exceed is not the broker's. With --lean single records come from a loader without
an event loop, too, which takes half the processor time. Medians of the rounds. The loader sends bytes made beforehand.
The page cache is filled beforehand, as it is on every machine that has run for a while (bench/page_cache.py).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.calm import StolenTime
from bench.page_cache import fill_page_cache

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "compat-tests")]

from harness.batches import batch_of  # noqa: E402
from harness.broker_process import Tidemark  # noqa: E402
from harness.ports import free_port  # noqa: E402
from harness.requests import produce  # noqa: E402
from harness.wire import Wire  # noqa: E402

from tidemark.cli.main import main as tidemark  # noqa: E402

SECONDS = float(os.environ.get("HTTP_RATES_SECONDS", "8"))  # of one measurement; the processes get it so
CONNECTIONS = int(os.environ.get("HTTP_RATES_CONNECTIONS", "50"))
BATCH = 100
VALUE = "x" * 1000
KEPT_MIN = 200  # requests: fewer have no slowest hundredth


def request(topic: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /topics/{topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data


async def _send(
    port: int, data: bytes, until: float, took: list[float], *, next_at: float = 0.0, every: float = 0.0
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (began := time.perf_counter()) < until:
        if began < next_at:
            await asyncio.sleep(next_at - began)
            began = time.perf_counter()
        next_at += every
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        took.append(time.perf_counter() - began)
    writer.close()


async def _produce(port: int, topic: str, body: object, *, pace: float = 0.0) -> dict[str, float]:
    # The loader makes way for the Kafka client, whose time is taken: processors are few.
    if os.environ.get("HTTP_RATES_REALTIME"):
        os.nice(-20)
    elif os.environ.get("HTTP_RATES_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(10)
    took: list[float] = []
    data, until = request(topic, body), time.perf_counter() + SECONDS
    began, every = time.perf_counter(), CONNECTIONS / pace if pace else 0.0
    sends = [
        _send(port, data, until, took, next_at=began + every * number / CONNECTIONS, every=every)
        for number in range(CONNECTIONS)
    ]
    await asyncio.gather(*sends)
    return _figures(took)


def _produce_leanly(port: int, topic: str, body: object) -> dict[str, float]:
    """As `_produce`, without an event loop: an answer is taken to be whole when it ends as one does."""
    os.nice(10)
    took: list[float] = []
    data, until = request(topic, body), time.perf_counter() + SECONDS
    began: dict[socket.socket, float] = {}
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            selector.register(client, selectors.EVENT_READ, client)
            began[client] = time.perf_counter()
            client.sendall(data)
        while (now := time.perf_counter()) < until:
            for key, _ in selector.select(1.0):
                answer = key.data.recv(1 << 16)
                assert answer.startswith(b"HTTP/1.1 200"), answer
                assert answer.endswith(b"]}"), answer
                now = time.perf_counter()
                took.append(now - began[key.data])
                began[key.data] = now
                key.data.sendall(data)
    return _figures(took)


async def _stream(port: int, topic: str) -> dict[str, float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(f"GET /topics/{topic}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    lines, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < SECONDS:
        try:
            data = await asyncio.wait_for(reader.read(1 << 20), 1.0)
        except TimeoutError:
            passed = time.perf_counter() - began - 1.0  # there is no more of it
            break
        lines += data.count(b'"value_format"')
    writer.close()
    return {"count": lines, "rate": lines / passed}


def neighbour(host: str, port: int) -> dict[str, float]:
    """Latencies of all requests, and of those that fell into calm windows: the hypervisor took nothing away."""
    requests: list[tuple[float, float]] = []
    if os.environ.get("HTTP_RATES_REALTIME"):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    with Wire(host, port) as wire:
        stolen = StolenTime()
        until = time.perf_counter() + SECONDS
        while (began := time.perf_counter()) < until:
            assert produce(wire, "other", batch_of(bytes(100)), acks=1).error_code == 0
            ended = time.perf_counter()
            requests.append((began, ended))
            stolen.mark(ended)
            time.sleep(0.001)
    kept = [ended - began for began, ended in requests if stolen.is_calm(began, ended)]
    figures = _latency([ended - began for began, ended in requests])
    stolen_pct = 100 * stolen.share / (os.cpu_count() or 1)
    figures |= {"stolen_pct": stolen_pct, "calm_pct": 100 * len(kept) / len(requests)}
    return figures | (
        {f"calm_{name}": value for name, value in _latency(kept).items()} if len(kept) >= KEPT_MIN else {}
    )


def burn() -> dict[str, float]:
    until, turns = time.perf_counter() + SECONDS, 0
    while time.perf_counter() < until:
        turns += 1
    return {"count": turns}


def _figures(took: list[float]) -> dict[str, float]:
    """With the loader's own processor time: what it takes, the Kafka client cannot have."""
    loader_cpu_us = time.process_time() / len(took) * 1e6
    return {"count": len(took), "rate": len(took) / SECONDS, "loader_cpu_us": loader_cpu_us, **_latency(took)}


def _latency(took: list[float]) -> dict[str, float]:
    hundredths = statistics.quantiles(took, n=100)
    return {f"p{each}_ms": hundredths[each - 1] * 1000 for each in (50, 90, 95, 99)}


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._port, self._port_elsewhere = free_port(), free_port()
        self._broker, self._elsewhere = _broker(self._port), _broker(self._port_elsewhere)
        self._holes = tempfile.TemporaryDirectory()

    def __enter__(self) -> Bench:
        fill_page_cache(Path(self._holes.name))
        self._broker.start()
        self._elsewhere.start()
        for broker in (self._broker, self._elsewhere):
            for topic in ("other", "singles", "batches"):
                tidemark(["topics", "create", topic, "-b", broker.bootstrap])
            for thread in psutil.Process(broker.pid).threads():
                if self._args.pinned:
                    os.sched_setaffinity(thread.id, [0])
                if self._args.realtime:
                    os.sched_setscheduler(thread.id, os.SCHED_FIFO, os.sched_param(5))
        self.neighbour()  # everything is warm
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.close()
        self._elsewhere.close()
        self._holes.cleanup()

    def one_round(self) -> dict[str, dict[str, float]]:
        figures = {"neighbour alone": self.neighbour()}
        burners = [self._started("burn", nice) for nice in ("0", "10")]  # as the broker and the loader are
        figures["neighbour of burners"] = self.neighbour()
        for each in burners:
            told(each)
        figures |= self._beside("singles", "single")
        if self._args.lean:
            figures |= self._beside("lean", "lean")
        for pace in self._args.paced:
            figures |= self._beside(f"{pace}/s", "single", pace)
        figures |= self._beside("batches", "batch")
        figures["stream"] = self._load("stream")
        return figures

    def _beside(self, name: str, *arguments: str) -> dict[str, dict[str, float]]:
        """A load, with the neighbour beside it; and the neighbour while another broker has that load."""
        load, *more = arguments
        figures = {}
        neighbour = self._start_neighbour()
        figures[name] = self._load(load, *more)
        figures[f"neighbour of {name}"] = told(neighbour)
        elsewhere = self._started(load, str(self._port_elsewhere), *more)
        figures[f"neighbour, {name} elsewhere"] = self.neighbour()
        told(elsewhere)
        return figures

    def _load(self, load: str, *more: str) -> dict[str, float]:
        """The loader's figures, and the broker's CPU time per request or record."""
        of_broker = psutil.Process(self._broker.pid)
        before = sum(of_broker.cpu_times()[:2])
        found = told(self._started(load, str(self._port), *more))
        cpu_seconds = sum(of_broker.cpu_times()[:2]) - before
        return {**found, "cpu_us": cpu_seconds / found["count"] * 1e6}

    def neighbour(self) -> dict[str, float]:
        return told(self._start_neighbour())

    def _start_neighbour(self) -> subprocess.Popen[str]:
        return self._started("neighbour", self._broker.host, str(self._broker.port))

    def _started(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "HTTP_RATES_SECONDS": str(self._args.seconds)}
        for name in ("idle", "realtime"):
            if getattr(self._args, name):
                environment[f"HTTP_RATES_{name.upper()}"] = "1"
        command = [sys.executable, __file__, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        if self._args.pinned:
            psutil.Process(process.pid).cpu_affinity([1])
        return process


def _broker(http_port: int) -> Tidemark:
    return Tidemark(Path(tempfile.mkdtemp()), settings={"http.listeners": f"HTTP://127.0.0.1:{http_port}"})


def told(process: subprocess.Popen[str]) -> dict[str, float]:
    with process:
        found: dict[str, float] = json.loads(process.communicate(timeout=120)[0])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--paced", type=lambda text: text.split(","), default=[])
    for name in ("pinned", "idle", "realtime", "lean"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.seconds = args.seconds or (2.0 if args.quick else 8.0)
    with Bench(args) as bench:
        rounds = [bench.one_round() for _ in range(args.rounds)]
    for case in rounds[0]:
        names = dict.fromkeys(name for each in rounds for name in each[case])
        middle = {name: statistics.median(each[case][name] for each in rounds if name in each[case]) for name in names}
        print(f"{case:28}", ", ".join(f"{name} {value:,.2f}" for name, value in middle.items()))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["neighbour", host, port]:
            print(json.dumps(neighbour(host, int(port))))
        case ["burn", nice]:
            os.nice(int(nice))
            print(json.dumps(burn()))
        case ["single", port, *pace]:
            single = _produce(int(port), "singles", {"value": VALUE}, pace=float(pace[0]) if pace else 0.0)
            print(json.dumps(asyncio.run(single)))
        case ["lean", port]:
            print(json.dumps(_produce_leanly(int(port), "singles", {"value": VALUE})))
        case ["batch", port]:
            print(json.dumps(asyncio.run(_produce(int(port), "batches", [{"value": VALUE}] * BATCH))))
        case ["stream", port]:
            print(json.dumps(asyncio.run(_stream(int(port), "batches"))))
        case _:
            main()
