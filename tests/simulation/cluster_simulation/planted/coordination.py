"""Bugs in groups and transactions."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.consumer.state import GroupState
from tidemark.broker.groups.pending_offsets import PendingOffsets
from tidemark.broker.transactions.markers import LocalMarkerWriter
from tidemark.protocol.errors import ErrorCode


def _aborted_offsets_count() -> Any:
    end = PendingOffsets.end
    return patch.object(PendingOffsets, "end", lambda self, producer_id, *, commit: end(self, producer_id, commit=True))


def _markers_are_written_again() -> Any:
    """A while later, when the producer may have begun its next transaction."""
    write = LocalMarkerWriter.write

    def twice(self: Any, marker: Any, **more: Any) -> Any:
        asyncio.get_running_loop().call_later(0.3, lambda: write(self, marker, **more))
        return write(self, marker, **more)

    return patch.object(LocalMarkerWriter, "write", twice)


def _partitions_move_before_they_are_let_go() -> Any:
    """KIP-848: the next member is given a partition while its owner still reads it."""
    return patch.object(GroupState, "is_free", lambda self, topic_id, number: True)


def _any_generation_may_commit() -> Any:
    return patch.object(ClassicGroup, "check_commit", lambda self, **more: ErrorCode.NONE)


BUGS: Final = {
    "markers-are-written-again": Bug(patches=_markers_are_written_again, faults=("slow",), seeds=4),
    "partitions-move-too-early": Bug(
        patches=_partitions_move_before_they_are_let_go,
        faults=("pause_client",),
        workloads=("consumer",),
        seeds=4,
    ),
    "any-generation-may-commit": Bug(
        patches=_any_generation_may_commit, faults=("pause_client",), workloads=("classic",), seeds=8
    ),
    "aborted-offsets-count": Bug(patches=_aborted_offsets_count, faults=("crash",), workloads=("transform",), seeds=2),
}
