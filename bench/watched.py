"""What being watched costs small requests: `python -m bench.watched [--seconds S] [--rounds N] [--slices N]`.

The case `small` of `python -m bench` against brokers that differ only in who looks: nobody, with the log of slow
requests, with an HTTP listener (then requests are measured), and with a scrape of /metrics every second. They are
measured in turns, one at a time; the medians of broker CPU per request are shown, and what each adds to the first.

Processes, and seconds, differ by more than what is looked for. With --slices there is one broker under one load that
goes on, cut into so many slices of a second, and every other one has scrapes in it. Of each slice the processor time
of the broker's threads is read (in nanoseconds), and from the size of its files how many requests there were: nobody
asks the broker for anything. Each slice with scrapes is compared with the mean of its two neighbours. A slice has ten
of them, and a tenth of what they cost is told: seconds differ by several percent, and one scrape would not be seen.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.brokers import Running, free_port, prepare_tidemark
from bench.cases import Scale, small

SCRAPE_SECONDS = 1.0
SCRAPES = 10  # in a slice that has some
BATCH_BYTES = 170  # of one record of 100 bytes, on disk


@contextmanager
def scraping(url: str) -> Iterator[None]:
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPE_SECONDS):
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slices", type=int, default=0)
    args = parser.parse_args()
    if args.slices:
        in_slices(args.slices)
        return
    port = {"http": free_port(), "scraped": free_port()}
    nobody: Mapping[str, str] = {"tidemark.log.slow.request.ms": "-1"}
    settings: dict[str, Mapping[str, str]] = {
        "nobody": nobody,
        "slow requests": {},
        "http": {"http.listeners": f"HTTP://127.0.0.1:{port['http']}"},
        "scraped": {"http.listeners": f"HTTP://127.0.0.1:{port['scraped']}"},
    }
    found: dict[str, list[float]] = {name: [] for name in settings}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as open_:
        rounds = {}
        for name, more in settings.items():
            broker = open_.enter_context(Running(prepare_tidemark(Path(directory) / name.replace(" ", "-"), more=more)))
            rounds[name] = open_.enter_context(small(broker, Scale(small_s=args.seconds)))
            rounds[name]()  # warm-up
        for _ in range(args.rounds):
            for name, one_round in rounds.items():
                with ExitStack() as watching:
                    if name == "scraped":
                        watching.enter_context(scraping(f"http://127.0.0.1:{port[name]}/metrics"))
                    found[name].append(one_round()["small.cpu_us"])
    first = statistics.median(found["nobody"])
    for name, figures in found.items():
        middle = statistics.median(figures)
        spread = f"{min(figures):.2f}-{max(figures):.2f}"
        print(f"{name:14} {middle:6.2f} µs ({spread})  {100 * (middle / first - 1):+.1f} %")


def in_slices(count: int) -> None:
    port = free_port()
    more, url = {"http.listeners": f"HTTP://127.0.0.1:{port}"}, f"http://127.0.0.1:{port}/metrics"
    with tempfile.TemporaryDirectory() as directory, ExitStack() as open_:
        broker = open_.enter_context(Running(prepare_tidemark(Path(directory) / "broker", more=more)))
        seconds = (count + 1) * SCRAPE_SECONDS
        one_round = open_.enter_context(small(broker, Scale(small_s=seconds)))
        load = threading.Thread(target=one_round)
        load.start()
        while not held_bytes(broker):
            time.sleep(0.01)
        ends = time.monotonic() + seconds - 3 * SCRAPE_SECONDS
        time.sleep(2 * SCRAPE_SECONDS)  # everything is warm
        slices: list[Slice] = []
        while time.monotonic() < ends:
            slices.append(one_slice(broker, url if len(slices) % 2 else None))
        load.join()
    costs = [each.cpu_ns / each.size for each in slices]
    adds = []
    for at in range(1, len(costs) - 1, 2):
        more_by = 2 * costs[at] / (costs[at - 1] + costs[at + 1]) - 1
        adds.append(100 * more_by * slices[at].seconds / SCRAPES)  # of one scrape a second
    error = statistics.stdev(adds) / len(adds) ** 0.5
    requests = sum(each.size for each in slices) / BATCH_BYTES
    cpu_us = sum(each.cpu_ns for each in slices) / 1000
    print(f"{cpu_us / requests:.2f} µs of CPU a request, {requests:,.0f} requests")
    quartiles = ", ".join(f"{each:+.1f}" for each in statistics.quantiles(adds, n=4))
    print(f"{len(adds)} slices with {SCRAPES} scrapes, beside their neighbours; of one scrape every second:")
    print(f"mean {statistics.mean(adds):+.2f} % (standard error {error:.2f}), quartiles {quartiles}")


class Slice(NamedTuple):
    seconds: float
    cpu_ns: int  # of the broker
    size: int  # bytes that came


def one_slice(broker: Running, url: str | None) -> Slice:
    """With scrapes in it, or without."""
    began, cpu_ns, size = time.monotonic(), running_ns(broker.pid), held_bytes(broker)
    for number in range(SCRAPES):
        if url is not None:
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()
        time.sleep(max(began + (number + 1) * SCRAPE_SECONDS / SCRAPES - time.monotonic(), 0))
    return Slice(time.monotonic() - began, running_ns(broker.pid) - cpu_ns, held_bytes(broker) - size)


def running_ns(pid: int) -> int:
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def held_bytes(broker: Running) -> int:
    return sum(each.stat().st_size for each in broker.data.glob("bench-small*/*.log"))


if __name__ == "__main__":
    main()
