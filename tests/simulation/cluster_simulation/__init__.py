"""Whole clusters from seeds: workloads, faults, and the checks of what came of them."""
