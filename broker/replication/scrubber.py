"""Scrubbing: every log is read again, slowly, so that what a disk has changed is found before it is needed.

What can be made anew from the batches is, while the log goes on. A log with damaged batches is not served any more: it
is fetched anew from another replica. If no other is in sync, the partition goes offline, with an error that names file
and position.

Whatever is found is looked at twice: a log goes on while it is read, and files that change look as if they were wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.replication.many_replicas import in_chunks
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.sync_threads import SyncThreads
from tidemark.environment import monotonic, new_executor
from tidemark.storage import (
    CorruptLog,
    Finding,
    ScrubEnded,
    ScrubJob,
    ScrubRunner,
    StorageError,
    can_be_mended,
    mend_beside,
    mending_job,
    note_damage,
    prepare,
    put_in_place,
    scrub_runner_for,
    segment_job,
    side_job,
)

if TYPE_CHECKING:
    from tidemark.broker.replication.role_assignment import RoleAssignment

log = logging.getLogger(__name__)

Key = tuple[bytes, int]  # topic id, partition
SWITCHED_OFF: Final = 0


class Scrubber:
    def __init__(self, table: ReplicaTable, roles: RoleAssignment, threads: SyncThreads) -> None:
        self._table = table
        self._roles = roles
        self._threads = threads  # for mending
        self._waiting = new_executor(1, name="scrub")  # it only waits for a process
        self._read_at: dict[Key, float] = {}  # when a log was read last
        self.suspect_disk: Callable[[str, BaseException], None] = lambda _path, _error: None  # may a disk have failed?
        self.read_logs = self.mended_segments = self.damaged_logs = 0  # for the metrics

    def close(self) -> None:
        self._waiting.shutdown(wait=True)

    async def scrub_all_due(self, config: Callable[[], BrokerConfig]) -> None:
        """Reads all logs that are due, those first that were not read for longest."""
        if config().log_scrub_bytes_per_second <= SWITCHED_OFF:
            return
        runners: dict[str, ScrubRunner] = {}
        try:
            for key in await self._due(config()):
                replica = self._at_rest(key)
                directory = None if replica is None else self._table.directory_of(replica)
                if replica is None or directory is None:
                    continue
                if config().log_scrub_bytes_per_second <= SWITCHED_OFF:
                    return
                self._read_at[key] = monotonic()
                runner = runners.setdefault(directory.path, scrub_runner_for(directory.files))
                scrub = _LogScrub(self, replica, runner=runner, rate=lambda: config().log_scrub_bytes_per_second)
                try:
                    await scrub.run()
                    self.read_logs += 1
                except (ScrubEnded, StorageError, OSError) as error:
                    runner.close()
                    del runners[directory.path]
                    log.warning("%s-%d was not read to its end: %s", replica.topic, replica.index, error)
                    self.suspect_disk(replica.log.directory, error)
        finally:
            for runner in runners.values():
                runner.close()

    async def _due(self, config: BrokerConfig) -> list[Key]:
        """Those first that were not read for longest. To go through all replicas takes long where there are many."""
        at_rest: list[Key] = []
        await in_chunks(
            self._table,
            lambda replicas: at_rest.extend((each.topic_id, each.index) for each in replicas if _is_at_rest(each)),
        )
        never = float("-inf")
        read_at = {key: self._read_at.get(key, never) for key in at_rest}
        self._read_at = {key: at for key, at in read_at.items() if at > never}
        before = monotonic() - config.log_scrub_interval_ms / 1000
        return sorted((key for key, at in read_at.items() if at <= before), key=read_at.__getitem__)

    def _at_rest(self, key: Key) -> Replica | None:
        hosted = self._table.topics_by_id.get(key[0])
        replica = None if hosted is None else hosted.replica(key[1])
        return replica if replica is not None and _is_at_rest(replica) else None

    def oldest_seconds(self) -> float:
        """Since the log was read that was not read for longest."""
        return monotonic() - min(self._read_at.values()) if self._read_at else 0.0

    async def findings(self, runner: ScrubRunner, job: ScrubJob) -> tuple[Finding, ...]:
        waited = asyncio.get_running_loop().run_in_executor(self._waiting, runner.run, job)
        return (await waited).findings

    def current(self, replica: Replica) -> Replica | None:
        """The replica that has this log by now, as leader or follower; None if nothing may be done to the log."""
        found = self._table.holder_of(replica.topic_id, replica.index, replica.log)
        return found if found is not None and _is_at_rest(found) else None

    def is_compacted(self, replica: Replica) -> bool:
        """Whether offsets may be missing: the log is cleaned, or was. To be asked each time, for to read a log may take
        days, and its topic's policy may change meanwhile."""
        directory = self._table.directory_of(replica)
        was_cleaned = directory is not None and (replica.topic, replica.index) in directory.cleaned_up_to
        return replica.log.config.compact or was_cleaned

    async def mend(self, replica: Replica, base_offset: int, findings: Sequence[Finding]) -> None:
        """Makes the indexes of a segment anew."""
        segments = replica.log.segments.consecutive([base_offset])
        if segments is None:
            return
        work = partial(prepare, mending_job(replica.log, segments[0], findings), replica.log.files)
        mended = await asyncio.get_running_loop().run_in_executor(self._threads.of_log(replica.log), work)
        if self.current(replica) is not None and put_in_place(replica.log, segments[0], mended):
            self.mended_segments += 1
            for path in sorted({each.path for each in findings}):
                log.warning("%s is made anew from the batches", path)

    def give_up(self, replica: Replica, finding: Finding, job: ScrubJob) -> None:
        """Batches are damaged: nothing of the log is served any more."""
        self.damaged_logs += 1
        error = CorruptLog(path=finding.path, position=finding.position, reason=finding.reason)
        log.error("%s-%d is not served from here any more: %s", replica.topic, replica.index, error)
        replica.log.fail(str(error))
        try:
            note_damage(replica.log.files, replica.log.directory, finding, job.known)
        except OSError as second:
            log.error("%s: the damage cannot be noted for the next start: %s", replica.log.directory, second)
        if isinstance(replica, Partition) and len(replica.leadership.isr) > 1:
            self._roles.rebuild(replica, str(error))
        else:
            self._roles.failed(replica, error)


class _LogScrub:
    """One log, segment by segment: what is found is acted upon before the next is read."""

    def __init__(self, scrubber: Scrubber, replica: Replica, *, runner: ScrubRunner, rate: Callable[[], int]) -> None:
        self._scrubber = scrubber
        self._replica = replica
        self._log = replica.log
        self._runner = runner
        self._rate = rate

    async def run(self) -> None:
        await self._scrub_beside()
        for base_offset in [each.base_offset for each in self._log.segments]:
            if self._scrubber.current(self._replica) is None or self._rate() <= SWITCHED_OFF:
                return
            await self._scrub_segment(base_offset)

    async def _scrub_beside(self) -> None:
        found: tuple[Finding, ...] = ()
        for _ in ("look", "look again"):
            found = await self._findings(side_job(self._log, compacted=self._scrubber.is_compacted(self._replica)))
            if not found or self._scrubber.current(self._replica) is None:
                return
        for each in found:
            log.warning("%s: it is made anew", each)
        mend_beside(self._log, found)

    async def _scrub_segment(self, base_offset: int) -> None:
        job = self._job(base_offset, float(self._rate()))
        found = () if job is None else await self._findings(job)
        if not found or self._scrubber.current(self._replica) is None:
            return
        if self._log.segments.active.base_offset == base_offset and any(map(can_be_mended, found)):
            await self._roll(base_offset)
        job = self._job(base_offset, float("inf"))
        found = () if job is None else await self._findings(job)
        replica = self._scrubber.current(self._replica)
        if job is None or not found or replica is None:
            return
        damage = next((each for each in found if not can_be_mended(each)), None)
        if damage is not None:
            self._scrubber.give_up(replica, damage, job)
        else:
            await self._scrubber.mend(replica, base_offset, found)

    async def _roll(self, base_offset: int) -> None:
        """What is written to is not mended: it is made to rest first, when no thread is at it."""
        while self._log.is_appending:
            replica = self._scrubber.current(self._replica)
            if not isinstance(replica, Partition):
                return
            await replica.written()
        if self._scrubber.current(self._replica) is not None and self._log.segments.active.base_offset == base_offset:
            self._log.roll()

    def _job(self, base_offset: int, rate: float) -> ScrubJob | None:
        is_compacted = self._scrubber.is_compacted(self._replica)
        return segment_job(self._log, base_offset, compacted=is_compacted, bytes_per_second=rate)

    async def _findings(self, job: ScrubJob) -> tuple[Finding, ...]:
        """None if the log was truncated meanwhile, or the segment is another by now: that was read half and half."""
        before = self._identity(job)
        try:
            found = await self._scrubber.findings(self._runner, job)
        except FileNotFoundError:
            return ()  # deleted by retention, or replaced by the cleaner
        return found if self._identity(job) == before else ()

    def _identity(self, job: ScrubJob) -> object:
        segments = [self._log.segments.consecutive([each.base_offset]) for each in job.segments]
        return self._log.generation, segments


def _is_at_rest(replica: Replica) -> bool:
    return not replica.is_truncating and not replica.log.is_offline
