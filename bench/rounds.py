"""Both brokers beside each other: filled first, then measured in turns; medians, and Tidemark's ratio to Kafka.

For measurements that `python -m bench` has no place for: what they need takes longer to make than to measure.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "compat-tests"))
from harness.broker_process import KINDS, BrokerProcess

# Or every process that a broker starts compiles its modules first, which no installed one does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

Figures = Mapping[str, float]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=sorted(KINDS), action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--pause", action="store_true", help="wait for a line on standard input between filling and measuring"
    )


def run(
    options: argparse.Namespace,
    settings: Mapping[str, str],
    *,
    fill: Callable[[BrokerProcess], None],
    measure: Callable[[BrokerProcess, int], Figures],
) -> None:
    """`fill` meets a running broker. `measure` finds it as `fill` or the last round left it, and is given the round."""
    with ExitStack() as stack:
        brokers = {}
        for name in options.broker or ["tidemark", "kafka"]:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
            broker = brokers[name] = KINDS[name](Path(folder), settings)
            stack.callback(broker.close)
            broker.start()
            fill(broker)
            print(f"{name} is filled", flush=True)
        if options.pause:
            sys.stdin.readline()
        found: dict[str, list[Figures]] = {name: [] for name in brokers}
        for number in range(options.rounds):
            for name, broker in brokers.items():
                found[name].append(measure(broker, number))
                print(f"{name}: " + ", ".join(f"{k} {v:.3g}" for k, v in found[name][-1].items()), flush=True)
    _report(found)


def _report(found: Mapping[str, list[Figures]]) -> None:
    medians = {name: _medians(rounds) for name, rounds in found.items()}
    for figure in next(iter(medians.values())):
        values = {name: each[figure] for name, each in medians.items()}
        line = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        if len(values) == 2 and values["kafka"]:
            line += f", ratio {values['tidemark'] / values['kafka']:.2f}"
        print(f"{figure}: {line}", flush=True)


def _medians(rounds: list[Figures]) -> Figures:
    return {figure: statistics.median(each[figure] for each in rounds) for figure in rounds[0]}
