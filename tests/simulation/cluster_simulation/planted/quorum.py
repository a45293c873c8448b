"""Bugs in the quorum."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.broker.cluster.broker_membership import BrokerMembership
from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.core.lease import lease_clock
from tidemark.files import Files
from tidemark.raft.node import NO_EFFECTS, Node
from tidemark.raft.storage import FileStorage
from tidemark.raft.sync_point import SyncPoint


def _votes_are_not_saved() -> Any:
    save = FileStorage.save

    def forgetful(self: Any, effects: Any) -> None:
        if effects.hard_state is not None:
            effects = replace(effects, hard_state=replace(effects.hard_state, vote=None))
        save(self, effects)

    return patch.object(FileStorage, "save", forgetful)


def _a_hung_disk_keeps_the_lead() -> Any:
    """Defect 7. Today's leader applies what a majority has on disk while it waits for its own disk, so that it goes on
    deciding and nobody misses anything: that is taken away, too."""
    stack = contextlib.ExitStack()
    stack.enter_context(patch.object(Node, "is_disk_stalled", property(lambda self: False)))
    stack.enter_context(patch.object(Node, "take_decided", lambda self: NO_EFFECTS))
    return stack


def _eligible_leaders_outlive_min_isr() -> Any:
    """Defect 2."""
    return patch("tidemark.broker.metadata.min_isr._without_eligible", lambda topic: iter(()))


def _leases_begin_with_the_answer() -> Any:
    handle = BrokerMembership._handle_answer
    return patch.object(
        BrokerMembership,
        "_handle_answer",
        lambda self, response, sent_at: handle(self, response, lease_clock()),
    )


def _a_short_write_has_no_errno() -> Any:
    """Defect 11: a disk that fills up takes a part of the bytes, and nobody asks it why."""

    def write_all(self: Any, fd: int, data: Any) -> None:
        if self.write(fd, data) != len(data):
            raise OSError("a short write")

    return patch.object(Files, "write_all", write_all)


def _a_lost_page_is_damage() -> Any:
    """Defect 11: nothing says how far the journal was synced."""
    return patch.object(SyncPoint, "_load", lambda self: None)


def _an_empty_disk_is_a_voters() -> Any:
    """Defect 10: a voter is known by its node, not by the directory that holds its vote."""
    stack = contextlib.ExitStack()
    known = property(lambda self: hashlib.md5(str(self.path).encode()).digest())
    stack.enter_context(patch.object(MetadataDirectory, "id", known))
    stack.enter_context(patch.object(MetadataDirectory, "check_new", lambda self, **_: None))
    return stack


BUGS: Final = {
    "an-empty-disk-is-a-voters": Bug(
        patches=_an_empty_disk_is_a_voters,
        faults=("replaced_metadata",),
        mode="unlucky",
        layout="apart",
        seeds=4,
    ),
    "eligible-leaders-outlive-min-isr": Bug(
        patches=_eligible_leaders_outlive_min_isr,
        faults=("hand_over",),
        workloads=("pairs",),
        mode="cached",
        seeds=4,
    ),
    "leases-begin-with-the-answer": Bug(patches=_leases_begin_with_the_answer, faults=("lagging_pause",), seeds=8),
    "a-short-write-ends-a-node": Bug(
        patches=_a_short_write_has_no_errno, faults=("disk_full",), workloads=("topics",), seeds=16
    ),
    "a-lost-page-stops-a-voter": Bug(
        patches=_a_lost_page_is_damage,
        faults=("torn_journal",),
        workloads=("topics", "admin"),
        mode="synced",
        seeds=12,
    ),
    "votes-are-not-saved": Bug(patches=_votes_are_not_saved, faults=("crash",), seeds=4),
    "a-hung-disk-keeps-the-lead": Bug(
        patches=_a_hung_disk_keeps_the_lead, faults=("slow",), without_one="disk_hang", seeds=8
    ),
}
