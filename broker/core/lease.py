"""How long a broker may serve after it was last heard, and how long the controller must wait for it.

The broker counts its lease from when it sent a heartbeat, and the controller answers only after the quorum has
confirmed that it still leads. So whatever an earlier controller granted was asked for before the present one was
elected, and is over one lease later. A lease is much shorter than a session: to lose it costs nothing but the moment
until the next heartbeat, and the shorter it is, the sooner others may lead when a node stands still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidemark.environment import boot_clock

CLOCK_DRIFT_MAX: Final = 0.05  # how much slower than the controller's a broker's clock may run
LEASE_SECONDS_MIN: Final = 2.0  # where the session allows it: as long as an election may take
HEARTBEATS_PER_LEASE: Final = 6

# Seconds that go on while a process is stopped or its machine sleeps, whatever the wall clock is set to.
lease_clock: Callable[[], float] = boot_clock


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimings:
    """Everything that follows from `broker.session.timeout.ms`. All nodes must have the same. In seconds."""

    session: float  # without heartbeats: fenced

    @property
    def lease(self) -> float:
        return max(self.session / 3, min(self.session / 2, LEASE_SECONDS_MIN))

    @property
    def held(self) -> float:
        """Of its lease a broker uses this much."""
        return self.lease * (1 - CLOCK_DRIFT_MAX)

    @property
    def silence(self) -> float:
        """Without any sign of life, heartbeat or word in the quorum: it stands still or is cut off."""
        return max(self.session / 2, self.lease)

    def heartbeat_interval(self, configured: float) -> float:
        return min(configured, self.lease / HEARTBEATS_PER_LEASE)
