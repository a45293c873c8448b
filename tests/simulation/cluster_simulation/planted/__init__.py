"""The test of the test: bugs that are put in while a simulation runs. Each must be found within a number of seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from cluster_simulation.planted import coordination, disk, quorum, replication, serving
from cluster_simulation.planted.bug import Bug

BUGS: Final[dict[str, Bug]] = {**disk.BUGS, **quorum.BUGS, **replication.BUGS, **coordination.BUGS, **serving.BUGS}


@contextlib.contextmanager
def plant(name: str | None) -> Iterator[None]:
    if name is None:
        yield
        return
    with BUGS[name].patches():
        yield


__all__ = ["BUGS", "Bug", "plant"]
