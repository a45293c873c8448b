"""Bugs in replication and leadership."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.broker.replication import fetcher
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.follower_sessions import FollowerSessions
from tidemark.broker.replication.leadership import Leadership
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica import Replica


def _undecided_records_are_shown() -> Any:
    return patch.object(Replica, "last_stable_offset", property(lambda self: self.high_watermark))


def _acknowledged_before_replicated() -> Any:
    """The high watermark is the leader's own end."""
    return patch.object(Leadership, "high_watermark", lambda self, own_end, **_: own_end)


def _high_watermark_from_the_end_after_an_election() -> Any:
    init = Partition.__init__

    def end_is_committed(self: Any, **more: Any) -> None:
        init(self, **{**more, "high_watermark": None})

    return patch.object(Partition, "__init__", end_is_committed)


def _shrinking_is_not_waited_for() -> Any:
    """A follower that is to leave the in-sync set counts no more, though the controller has not agreed yet."""
    sort = Leadership._sort

    def eager(self: Any) -> None:
        sort(self)
        if self.proposal is not None:
            self._counted = [each for each in self._counted if each.node_id in self.proposal.members]

    return patch.object(Leadership, "_sort", eager)


def _a_batch_from_within_is_dropped() -> Any:
    """Defect 8: a new follower of a log that begins in the middle of a batch."""

    def append_fetched(self: Any, records: Any) -> bool:
        from tidemark.protocol.records import read_header

        if read_header(records).base_offset < self.log.end_offset:
            return False
        self.log.append_replicated(records)
        if self.log.end_offset - self.log.recovery_point >= self.unflushed_limit:
            self._commit.request()
        return True

    return patch.object(Followed, "append_fetched", append_fetched)


def _a_deleted_topic_keeps_its_fetcher_waiting() -> Any:
    """Defect 9."""

    def retire(self: Any) -> None:
        self._is_retired = True
        self.wake_all()

    def flush_failed(self: Any, error: BaseException) -> None:
        super(Followed, self)._flush_failed(error)

    import contextlib

    stack = contextlib.ExitStack()
    stack.enter_context(patch.object(Followed, "retire", retire))
    stack.enter_context(patch.object(Followed, "_flush_failed", flush_failed))
    stack.enter_context(patch.object(fetcher, "SYNC_SECONDS_MAX", 1e6))  # it would help itself
    return stack


def _anybody_may_fetch_as_a_replica() -> Any:
    """Defect 17."""

    def check(self: Any, replica: Any) -> None:
        return None

    return patch.object(FollowerSessions, "_check_replica", check)


def _records_above_the_high_watermark_are_shown() -> Any:
    def read(self: Any, *, offset: int, limit_bytes: int, at_least_one: bool, wait: bool = True) -> Any:
        return self.log.read(offset=offset, limit_bytes=limit_bytes, at_least_one=at_least_one, wait=wait)

    return patch.object(Replica, "read", read)


BUGS: Final = {
    "undecided-records-are-shown": Bug(patches=_undecided_records_are_shown, faults=("network",), seeds=4),
    "acknowledged-before-replicated": Bug(patches=_acknowledged_before_replicated, faults=("crash",), seeds=2),
    "high-watermark-from-the-end": Bug(
        patches=_high_watermark_from_the_end_after_an_election, faults=("isolated_kill", "kill", "resets"), seeds=6
    ),
    "shrinking-is-not-waited-for": Bug(patches=_shrinking_is_not_waited_for, faults=("crash", "network"), seeds=6),
    "a-batch-from-within-is-dropped": Bug(
        patches=_a_batch_from_within_is_dropped,
        faults=("replaced_disk",),
        workloads=("admin",),
        mode="unlucky",
        layout="apart",
        seeds=8,
    ),
    "a-deleted-topic-keeps-its-fetcher": Bug(
        patches=_a_deleted_topic_keeps_its_fetcher_waiting,
        faults=("slow_sync", "disk_hang"),
        workloads=("topics",),
        mode="synced",
        without_one="disk_hang",
        seeds=8,
    ),
    "anybody-may-fetch-as-a-replica": Bug(
        patches=_anybody_may_fetch_as_a_replica, faults=("isolate",), workloads=("hostile",), seeds=8
    ),
    "records-above-the-high-watermark": Bug(
        patches=_records_above_the_high_watermark_are_shown, faults=("crash", "network"), seeds=6
    ),
}
