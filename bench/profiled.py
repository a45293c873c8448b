"""Runs the broker inside a profiler: `python -m bench.profiled MODE FILE [broker arguments]`.

SIGUSR1 begins to count, SIGUSR2 stops and writes FILE; so only the load is counted, not the start or the idling.
Two ways, because each lies a little: `sample` interrupts the process every few milliseconds of CPU it uses (cheap,
true shares; a call into C is charged to the line that made it), `calls` is cProfile (exact counts; it makes small
Python functions look two or three times dearer than they are).
"""

import cProfile
import json
import pstats
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.001  # asked for; the kernel rounds up to its tick, often 4 ms
DEPTH = 60


def sampler(path: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    lines: Counter[str] = Counter()

    def take(_: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        own[_function(frame)] += 1
        lines[f"{frame.f_code.co_filename}:{frame.f_lineno}"] += 1
        seen: set[str] = set()
        at: FrameType | None = frame
        while at is not None and len(seen) < DEPTH:
            seen.add(_function(at))
            at = at.f_back
        total.update(seen)

    def begin() -> None:
        signal.signal(signal.SIGPROF, take)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def end() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        counts = {"own": own, "total": total, "lines": lines}
        _replace(path, json.dumps({kind: counter.most_common(200) for kind, counter in counts.items()}))

    return begin, end


def _function(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_code.co_firstlineno}:{frame.f_code.co_qualname}"


def call_counter(path: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    profile = cProfile.Profile()

    def end() -> None:
        profile.disable()
        partial = path.with_suffix(".partial")
        pstats.Stats(profile).dump_stats(partial)
        partial.rename(path)

    return profile.enable, end


def _replace(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


MODES = {"sample": sampler, "calls": call_counter}


def main() -> None:
    mode, file, *arguments = sys.argv[1:]
    begin, end = MODES[mode](Path(file))
    signal.signal(signal.SIGUSR1, lambda *_: begin())
    signal.signal(signal.SIGUSR2, lambda *_: end())
    sys.argv = ["broker", *arguments]
    runpy.run_module("tidemark.broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
