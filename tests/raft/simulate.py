"""Simulate for long: `python tests/raft/simulate.py --seeds 100000 [--first 0]`, or one seed: `--seed 4711`."""

from __future__ import annotations

import argparse
import sys
import time

from raft_simulation import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    if options.seed is not None:
        print(run_seed(options.seed))
        return 0
    return _run(options.first, options.seeds)


def _run(first: int, count: int) -> int:
    started, seconds, steps, failed = time.process_time(), 0.0, 0, []
    for seed in range(first, first + count):
        try:
            result = run_seed(seed)
        except AssertionError as error:
            failed.append(seed)
            print(f"seed {seed}: {error}", flush=True)
            continue
        seconds += result.seconds
        steps += result.steps
        if (seed - first + 1) % 1000 == 0:
            print(f"{seed - first + 1} seeds, {seconds / 3600:.1f} hours simulated", flush=True)
    cpu = time.process_time() - started
    print(f"{count} seeds ({count / cpu:.0f}/s of CPU), {steps} steps, {seconds / 3600:.1f} hours simulated")
    print(f"{len(failed)} failed: {failed[:20]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
