"""How a load runs: a process that gets ready, waits for the word, works, and reports one JSON object.

Getting ready (imports, connections, metadata) is thus never inside the measured time, and several loaders start
at one moment.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.brokers import ROOT

TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Which loader (a module of this package) with which parameters."""

    module: str
    parameters: Mapping[str, Any]


class Loader:
    def __init__(self, load: Load) -> None:
        self._load = load
        command = [sys.executable, "-m", f"bench.loaders.{load.module}", json.dumps(dict(load.parameters))]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self._process.wait()
            raise RuntimeError(f"loader {self._load.module} failed before it began")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """For a load that goes on until it is told."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Waits for the report only: what the process does after it (closing, exiting) is not part of the load."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"loader {self._load.module} ended without a result")
        report: dict[str, Any] = json.loads(line)
        return report

    def close(self) -> None:
        try:
            self._process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run_together(
    loads: Sequence[Load], *, before: Callable[[], None], after: Callable[[], None]
) -> list[dict[str, Any]]:
    """Runs loads at the same time; `before` and `after` are called at the edges of the measured time."""
    loaders = [Loader(load) for load in loads]
    try:
        for loader in loaders:
            loader.wait_ready()
        before()
        for loader in loaders:
            loader.go()
        results = [loader.result() for loader in loaders]
        after()
        return results
    finally:
        for loader in loaders:
            loader.close()


def serve(prepare: Callable[[dict[str, Any]], Callable[[], dict[str, Any]]]) -> None:
    """The loader's side: `prepare` gets ready and returns the work."""
    work = prepare(json.loads(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = _cpu_s()
    report = work()
    print(json.dumps({**report, "loader_cpu_s": _cpu_s() - cpu}), flush=True)


def _cpu_s() -> float:
    """Of this process and of what it ran to its end, such as a Java tool."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
