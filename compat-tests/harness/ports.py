"""Ports for servers whose port must be known before they start.

The system gives outgoing connections ports of its own range, so a port "free" there may be taken a moment later. These
lie below that range, and test processes that run side by side draw from ranges of their own.
"""

from __future__ import annotations

import os
import random
import socket
from typing import Final

FIRST: Final = 12_000
PER_WORKER: Final = 1_800
WORKERS_MAX: Final = 10

_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, and that this process has not been given before."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of `count` such ports in a row."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS_MAX
    first = FIRST + worker * PER_WORKER
    for _ in range(PER_WORKER):
        wanted = range(start := random.randrange(first, first + PER_WORKER - count), start + count)
        if _given.isdisjoint(wanted) and all(map(_is_free, wanted)):
            _given.update(wanted)
            return start
    raise RuntimeError(f"no {count} free ports in a row from {first} on")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
