"""Where a Tidemark broker's CPU time goes under one case: `python -m bench.profile_broker small`."""

import argparse
import json
import os
import pstats
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.brokers import ROOT, Running, make_certificates, prepare_tidemark
from bench.cases import QUICK, TLS_CASES
from bench.run import WARM_CASES

WRITE_TIMEOUT_S = 20.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.profile_broker", description=__doc__)
    parser.add_argument("case", choices=[case for case in WARM_CASES if case != "memory"])
    modes = "sample: shares of CPU; calls: cProfile with counts; perf: C and kernel (Linux perf)"
    parser.add_argument("--mode", choices=tuple(PRINTERS), default="sample", help=modes)
    parser.add_argument("--top", type=int, default=30, help="how many functions to print")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of loads that last a time")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    if arguments.mode == "perf" and shutil.which("perf") is None:
        print("perf is not installed", file=sys.stderr)
        return 2
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="profile-", dir=cache, ignore_cleanup_errors=True) as directory:
        _profile(arguments, Path(directory))
    return 0


def _profile(arguments: argparse.Namespace, directory: Path) -> None:
    output = directory / "profile"
    certificates = make_certificates(directory / "certificates") if arguments.case in TLS_CASES else None
    launch = prepare_tidemark(directory / "broker", certificates=certificates)
    if arguments.mode != "perf":
        at = launch.argv.index("tidemark.broker")
        wrapped = [*launch.argv[:at], "bench.profiled", arguments.mode, str(output), *launch.argv[at + 1 :]]
        launch = replace(launch, argv=wrapped)
    scale = replace(
        QUICK, bytes_1k=1_000_000_000, bytes_100=400_000_000, sustained_bytes=3_000_000_000, cold_bytes=4_000_000_000
    )
    scale = replace(scale, small_s=arguments.seconds, commit_s=arguments.seconds / 2, idle_groups=1_000)
    scale = replace(scale, txn_s=arguments.seconds / 2, txn_commits=1_000, txn_bytes=500_000_000)
    with Running(launch) as broker, WARM_CASES[arguments.case](broker, scale) as one_round:
        one_round()
        before = broker.cpu_s()
        figures = _perf(broker, one_round, output) if arguments.mode == "perf" else _signalled(broker, one_round)
        used = broker.cpu_s() - before
        if arguments.mode != "perf":
            _wait_for(output)
    print(", ".join(f"{name} {value:,.4g}" for name, value in figures.items()))
    print(f"broker CPU {used:.2f} s, all of the round included (topics made and deleted, offsets checked)\n")
    PRINTERS[arguments.mode](output, arguments.top)


def _signalled(broker: Running, one_round: Callable[[], dict[str, float]]) -> dict[str, float]:
    os.kill(broker.pid, signal.SIGUSR1)
    try:
        return one_round()
    finally:
        os.kill(broker.pid, signal.SIGUSR2)


def _perf(broker: Running, one_round: Callable[[], dict[str, float]], output: Path) -> dict[str, float]:
    command = ["perf", "record", "-q", "-F", "1999", "-g", "-p", str(broker.pid), "-o", str(output)]
    recorder = subprocess.Popen(command)
    try:
        return one_round()
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WRITE_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the broker wrote no profile")
        time.sleep(0.05)


def _short(place: str) -> str:
    return place.replace(f"{ROOT}{os.sep}", "").replace(f"{sys.base_prefix}{os.sep}lib{os.sep}", "")


def _is_ours(place: str) -> bool:
    return place.startswith(f"{ROOT}/") and not place.startswith((f"{ROOT}/bench/", f"{ROOT}/."))


def _print_samples(path: Path, top: int) -> None:
    profile = json.loads(path.read_text(encoding="utf-8"))
    samples = sum(count for _, count in profile["own"]) or 1
    total = dict(profile["total"])
    print(f"{samples} samples\n\n  own %  total %  function")
    for place, count in profile["own"][:top]:
        print(f"{100 * count / samples:7.1f} {100 * total.get(place, count) / samples:8.1f}  {_short(place)}")
    print("\ntotal %  function of ours (with what it calls)")
    ours = [(place, count) for place, count in profile["total"] if _is_ours(place)]
    for place, count in ours[:top]:
        print(f"{100 * count / samples:7.1f}  {_short(place)}")
    print("\n  own %  line")
    for place, count in profile["lines"][:top]:
        print(f"{100 * count / samples:7.1f}  {_short(place)}")


def _print_calls(path: Path, top: int) -> None:
    stats = pstats.Stats(str(path))
    stats.sort_stats("tottime").print_stats(top)
    stats.sort_stats("cumtime").print_stats(top)


def _print_perf(path: Path, top: int) -> None:
    command = ["perf", "report", "-i", str(path), "--stdio", "--no-children", "-g", "none", "--sort"]
    for columns in ("dso", "dso,symbol"):
        done = subprocess.run([*command, columns], capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("#")]
        print("\n".join(line.rstrip(" -") for line in lines[:top]) or done.stderr, end="\n\n")


PRINTERS: dict[str, Callable[[Path, int], None]] = {
    "sample": _print_samples,
    "calls": _print_calls,
    "perf": _print_perf,
}


if __name__ == "__main__":
    sys.exit(main())
