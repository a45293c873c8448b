"""A whole quorum in one process: seeded network, disks and clocks; every step is checked, and every seed replays."""

from raft_simulation.checker import Violation
from raft_simulation.history import Result, run_seed
from raft_simulation.world import World

__all__ = ["Result", "Violation", "World", "run_seed"]
