"""Bugs in groups and transactions."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.broker.groups.pending_offsets import PendingOffsets


def _aborted_offsets_count() -> Any:
    end = PendingOffsets.end
    return patch.object(PendingOffsets, "end", lambda self, producer_id, *, commit: end(self, producer_id, commit=True))


BUGS: Final = {
    "aborted-offsets-count": Bug(patches=_aborted_offsets_count, faults=("crash",), workloads=("transform",), seeds=2),
}
