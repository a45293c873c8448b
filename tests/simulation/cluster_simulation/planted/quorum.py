"""Bugs in the quorum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.raft.node import Node
from tidemark.raft.storage import FileStorage


def _votes_are_not_saved() -> Any:
    save = FileStorage.save

    def forgetful(self: Any, effects: Any) -> None:
        if effects.hard_state is not None:
            effects = replace(effects, hard_state=replace(effects.hard_state, vote=None))
        save(self, effects)

    return patch.object(FileStorage, "save", forgetful)


def _a_hung_disk_keeps_the_lead() -> Any:
    """Defect 7."""
    return patch.object(Node, "is_disk_stalled", property(lambda self: False))


BUGS: Final = {
    "votes-are-not-saved": Bug(patches=_votes_are_not_saved, faults=("crash",), seeds=4),
    "a-hung-disk-keeps-the-lead": Bug(
        patches=_a_hung_disk_keeps_the_lead, faults=("slow",), without_one="disk_hang", seeds=8
    ),
}
