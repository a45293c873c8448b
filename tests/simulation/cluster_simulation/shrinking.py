"""From a failing seed to what it needs to fail."""

from __future__ import annotations

from dataclasses import replace

from cluster_simulation.scenario import Options, run


def shrunk(seed: int, options: Options) -> Options:
    """Leaves out halves, then single ones of the faults, then clients, as long as it still fails."""
    whole = run(seed, options)
    if not whole.anomaly:
        return options
    kept = [number for number in range(whole.fault_count) if number not in options.without_faults]
    size = max(1, len(kept) // 2)
    while size:
        for at in range(0, len(kept), size):
            options = _if_it_fails(seed, options, without_faults=options.without_faults | {*kept[at : at + size]})
        kept = [number for number in kept if number not in options.without_faults]
        size //= 2
    for name in whole.clients:
        options = _if_it_fails(seed, options, without_clients=options.without_clients | {name})
    return options


def _if_it_fails(seed: int, options: Options, **changes: frozenset[int] | frozenset[str]) -> Options:
    smaller = replace(options, **changes)  # type: ignore[arg-type]
    return smaller if run(seed, smaller).anomaly else options
