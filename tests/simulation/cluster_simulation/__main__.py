"""`make simulate`: seeds, one after the other, on all cores; or one seed, told in full.

python -m cluster_simulation --seeds 1000 [--from 1] [--nodes 5] [--faults disk,network] [--jobs 2]
python -m cluster_simulation --replay 17 [--shrink]
python -m cluster_simulation --planted all
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context

from cluster_simulation import planted
from cluster_simulation.planted.search import first_seed, options_of
from cluster_simulation.scenario import GROUPS, WORKLOADS, Options, Outcome, run
from cluster_simulation.shrinking import shrunk

TELLS_EVERY_SECONDS = 30.0  # where nobody watches


def main() -> int:
    options = _parser().parse_args()
    if options.planted:
        return _find_planted(options.planted, options.jobs)
    chosen = _options(options)
    with planted.plant(options.bug):
        if options.replay is not None:
            return _replay(options.replay, chosen, shrink=options.shrink)
        return _many(options, chosen)


def _options(arguments: argparse.Namespace) -> Options:
    if arguments.bug:
        return options_of(arguments.bug)
    return Options(
        nodes=arguments.nodes,
        groups=arguments.faults,
        workloads=arguments.workloads,
        seconds=arguments.seconds,
        without_faults=arguments.without_faults,
        without_clients=arguments.without_clients,
    )


def _find_planted(wanted: str, jobs: int) -> int:
    names = [*planted.BUGS] if wanted == "all" else wanted.split(",")
    missed = []
    for name, seed in zip(names, _first_seeds(names, jobs), strict=True):
        told = f"found by seed {seed}" if seed is not None else "NOT FOUND"
        print(f"{name:42} {told} (stated: {planted.BUGS[name].seeds})", flush=True)
        if seed is None:
            missed.append(name)
    print(f"{len(names) - len(missed)} of {len(names)} planted bugs are found")
    return 1 if missed else 0


def _first_seeds(names: list[str], jobs: int) -> Iterator[int | None]:
    if jobs <= 1:
        yield from map(first_seed, names)
        return
    with get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(first_seed, names)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster_simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first seed")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of faults, in each run")
    parser.add_argument("--faults", type=_words, default=GROUPS, help=f"groups ({','.join(GROUPS)}) or kinds")
    parser.add_argument("--workloads", type=_words, help=f"not the seed's own: {','.join(WORKLOADS)}")
    parser.add_argument("--without-faults", type=lambda text: frozenset(map(int, _words(text))), default=frozenset())
    parser.add_argument("--without-clients", type=lambda text: frozenset(_words(text)), default=frozenset())
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--replay", type=int, help="one seed, with its timeline")
    parser.add_argument("--shrink", action="store_true", help="leave out faults and clients while it still fails")
    parser.add_argument("--planted", help="look for planted bugs: all, or their names")
    parser.add_argument("--bug", choices=sorted(planted.BUGS), help="put a bug in, to see whether it is found")
    return parser


def _replay(seed: int, options: Options, *, shrink: bool) -> int:
    if shrink:
        options = shrunk(seed, options)
    outcome = run(seed, options)
    for at, who, what in outcome.timeline:
        print(f"{at:10.4f}  {who:16} {what}")
    print(f"seed {seed}: {outcome.anomaly or 'no anomaly'}; digest {outcome.digest}")
    if shrink:
        left = outcome.fault_count - len(options.without_faults)
        print(f"{left} of {outcome.fault_count} faults and the clients {', '.join(outcome.clients)} are enough:")
        faults = ",".join(map(str, sorted(options.without_faults)))
        clients = ",".join(sorted(options.without_clients))
        print(f"  --replay {seed} --without-faults '{faults}' --without-clients '{clients}'")
    return 1 if outcome.anomaly else 0


def _many(arguments: argparse.Namespace, options: Options) -> int:
    began, told_at, failed = time.monotonic(), 0.0, []
    virtual = requests = acknowledged = transactions = 0.0
    kinds: Counter[str] = Counter()
    workloads: Counter[str] = Counter()
    recovery = 0.0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for done, outcome in enumerate(_outcomes(seeds, options, arguments.jobs), start=1):
        virtual += outcome.virtual_seconds
        requests, acknowledged = requests + outcome.requests, acknowledged + outcome.acknowledged
        transactions += outcome.transactions
        recovery = max(recovery, outcome.recovery_seconds)
        kinds.update(outcome.faults)
        workloads.update(outcome.workloads)
        if outcome.anomaly:
            failed.append(outcome.seed)
            print(f"\nseed {outcome.seed}: {outcome.anomaly}\n  {_again(outcome.seed, arguments)}", flush=True)
        real = time.monotonic() - began
        if sys.stderr.isatty() or real - told_at > TELLS_EVERY_SECONDS or done == arguments.seeds:
            told_at = real
            print(
                f"{done} seeds, {len(failed)} failed, {virtual / 3600:.2f} virtual hours, x{virtual / real:.0f},"
                f" {int(requests)} requests, {int(acknowledged)} records, {int(transactions)} transactions,"
                f" {kinds.total()} faults of {len(kinds)} kinds, clients: {_counts(workloads)}",
                file=sys.stderr,
                flush=True,
            )
    print("faults by kind:", _counts(kinds))
    print(
        f"longest wait for an acknowledgement after all was well, or without one node: {recovery:.1f} virtual seconds"
    )
    return 1 if failed else 0


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items()))


def _again(seed: int, arguments: argparse.Namespace) -> str:
    more = f" --nodes {arguments.nodes} --seconds {arguments.seconds:g} --faults {','.join(arguments.faults)}"
    more += "" if arguments.workloads is None else f" --workloads '{','.join(arguments.workloads)}'"
    bug = f" --bug {arguments.bug}" if arguments.bug else ""
    return f"PYTHONPATH=tests/simulation .venv/bin/python -m cluster_simulation --replay {seed}{more}{bug}"


def _outcomes(seeds: range, options: Options, jobs: int) -> Iterator[Outcome]:
    if jobs <= 1:
        yield from (_brief(seed, options) for seed in seeds)
        return
    with get_context("fork").Pool(jobs, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(_Run(options), seeds)


class _Run:
    def __init__(self, options: Options) -> None:
        self._options = options

    def __call__(self, seed: int) -> Outcome:
        return _brief(seed, self._options)


def _brief(seed: int, options: Options) -> Outcome:
    outcome = run(seed, options)
    outcome.timeline = []
    return outcome


if __name__ == "__main__":
    sys.exit(main())
