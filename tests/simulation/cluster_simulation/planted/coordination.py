"""Bugs in groups and transactions."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.broker.groups import offset_commit
from tidemark.broker.groups.pending_offsets import PendingOffsets
from tidemark.protocol.errors import ErrorCode


def _old_generations_may_commit() -> Any:
    return patch.object(offset_commit, "_check", lambda *_, **__: ErrorCode.NONE)


def _aborted_offsets_count() -> Any:
    end = PendingOffsets.end
    return patch.object(PendingOffsets, "end", lambda self, producer_id, *, commit: end(self, producer_id, commit=True))


BUGS: Final = {
    "old-generations-may-commit": Bug(
        patches=_old_generations_may_commit,
        faults=("crash", "network"),
        workloads=("classic", "consumer"),
        seeds=20,
        seconds=15.0,
    ),
    "aborted-offsets-count": Bug(patches=_aborted_offsets_count, faults=("crash",), workloads=("transform",), seeds=2),
}
