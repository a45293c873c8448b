"""What being watched costs small requests: `python -m bench.watched [--seconds S] [--rounds N] [--pairs N]`.

The case `small` of `python -m bench` against brokers that differ only in who looks: nobody, with the log of slow
requests, with an HTTP listener (then requests are measured), and with a scrape of /metrics every second. They are
measured in turns, one at a time; the medians of broker CPU per request are shown, and what each adds to the first.
Processes differ by more than what is looked for: with --pairs one broker is measured with and without the scrapes, so
many times, now one first and now the other, and the differences within pairs are shown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from bench.brokers import Running, free_port, prepare_tidemark
from bench.cases import Scale, small

SCRAPE_SECONDS = 1.0


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
    parser.add_argument("--pairs", type=int, default=0)
    args = parser.parse_args()
    if args.pairs:
        in_pairs(args.pairs, args.seconds)
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


def in_pairs(count: int, seconds: float) -> None:
    port = free_port()
    more, url = {"http.listeners": f"HTTP://127.0.0.1:{port}"}, f"http://127.0.0.1:{port}/metrics"
    found: dict[bool, list[float]] = {False: [], True: []}  # by whether it is scraped
    with tempfile.TemporaryDirectory() as directory, ExitStack() as open_:
        broker = open_.enter_context(Running(prepare_tidemark(Path(directory) / "broker", more=more)))
        one_round = open_.enter_context(small(broker, Scale(small_s=seconds)))
        one_round()  # warm-up
        for number in range(count):
            for scraped in (False, True) if number % 2 else (True, False):
                with scraping(url) if scraped else nullcontext():
                    found[scraped].append(one_round()["small.cpu_us"])
    ratios = sorted(with_ / without for without, with_ in zip(found[False], found[True], strict=True))
    without, with_ = statistics.median(found[False]), statistics.median(found[True])
    print(f"{without:.2f} µs a request without scrapes, {with_:.2f} with one every {SCRAPE_SECONDS:g} s")
    told = ", ".join(f"{100 * (each - 1):+.1f}" for each in ratios)
    print(f"median of {count} pairs: {100 * (statistics.median(ratios) - 1):+.1f} % ({told})")


if __name__ == "__main__":
    main()
