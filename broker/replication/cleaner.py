"""The log cleaner: which compacted log is cleaned next, and when. The work itself is done by other processes.

A log is cleaned on each of its replicas, on each for itself: they may differ in what is gone already, and never in what
a reader makes of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.replication.many_replicas import in_chunks
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.sync_threads import SyncThreads
from tidemark.environment import monotonic, new_executor, random_bytes
from tidemark.storage import (
    CleaningFailed,
    CleaningJob,
    CleaningStarved,
    CleaningStats,
    Dirtiness,
    LogDirectory,
    Runner,
    StorageError,
    is_due,
    job_for,
    measure,
    runner_for,
    swap,
)

log = logging.getLogger(__name__)

THREADS_MAX: Final = 64
SEED_BYTES: Final = 16
PATIENT_BYTES_MIN: Final = 32 << 20  # what takes less than a tenth of a second disturbs nobody
IMPATIENT_SECONDS: Final = 3600.0  # after a cleaning that was not let run

Key = tuple[bytes, int]  # topic id, partition


@dataclass(frozen=True, slots=True)
class _Due:
    replica: Replica
    directory: LogDirectory
    dirtiness: Dirtiness


class Cleaner:
    def __init__(
        self,
        table: ReplicaTable,
        threads: SyncThreads,
        *,
        is_moving: Callable[[tuple[str, int]], bool] = lambda _place: False,
    ) -> None:
        """`is_moving`: to another directory; such a log is left alone."""
        self._table = table
        self._is_moving = is_moving
        self._threads = threads  # for checkpoints
        self._waiting = new_executor(THREADS_MAX, name="cleaner")  # they only wait for a process
        self._under_way: set[Key] = set()
        self.uncleanable: dict[Key, str] = {}  # and why; until the next start, as in Kafka
        self.suspect_disk: Callable[[str, BaseException], None] = lambda _path, _error: None  # may a disk have failed?
        self._patient_from = float("-inf")  # monotonic: until then cleanings do not wait for all others
        self.cleaned_logs = self.bytes_before = self.bytes_after = 0  # since the start

    def close(self) -> None:
        self._waiting.shutdown(wait=True)

    async def clean_all_due(self, config: BrokerConfig) -> None:
        """Cleans logs, the dirtiest first, until none is due."""
        if config.log_cleaner_enable:
            count = min(config.log_cleaner_threads, THREADS_MAX)
            await asyncio.gather(*(self._clean_in_turn(config, share=count) for _ in range(count)))

    async def _clean_in_turn(self, config: BrokerConfig, *, share: int) -> None:
        """One process, one log after another. `share`: how many such there are."""
        tried: set[Key] = set()
        runners: dict[str, Runner] = {}
        try:
            while (due := await self._dirtiest(but=tried)) is not None:
                key = due.replica.topic_id, due.replica.index
                runner = runners.setdefault(due.directory.path, runner_for(due.directory.files))
                self._under_way.add(key)
                try:
                    if not await self._clean(due, runner, config, share=share):
                        tried.add(key)
                finally:
                    self._under_way.discard(key)
        finally:
            for runner in runners.values():
                runner.close()

    async def _dirtiest(self, *, but: set[Key]) -> _Due | None:
        """Looked for in chunks: with thousands of logs it takes too long for one turn of the loop."""
        found: list[_Due] = []
        await in_chunks(self._table, lambda replicas: found.extend(self._all_due(replicas, but)))
        # Meanwhile another task may have begun with one of them, or its role may have changed.
        holders = [self._table.holder_of(each.replica.topic_id, each.replica.index, each.replica.log) for each in found]
        still_due = self._all_due([holder for holder in holders if holder is not None], but)
        return max(still_due, key=lambda each: each.dirtiness.ratio, default=None)

    def _all_due(self, replicas: Iterable[Replica], but: set[Key]) -> list[_Due]:
        now_ms = self._table.now_ms()
        return [due for replica in replicas if (due := self._measure(replica, but, now_ms)) is not None]

    def _measure(self, replica: Replica, but: set[Key], now_ms: int) -> _Due | None:
        key = replica.topic_id, replica.index
        if not replica.log.config.compact or replica.is_truncating or replica.log.is_offline:
            return None
        if key in but or key in self._under_way or key in self.uncleanable:
            return None
        place = replica.topic, replica.index
        if self._is_moving(place):
            return None
        directory = next((each for each in self._table.directories if each.logs.get(place) is replica.log), None)
        if directory is None:
            return None
        try:
            cleaned_up_to = directory.cleaned_up_to.get(place, 0)
            dirtiness = measure(
                replica.log, cleaned_up_to=cleaned_up_to, high_watermark=replica.high_watermark, now_ms=now_ms
            )
        except (OSError, StorageError) as error:
            log.error("%s-%d: what there is to clean cannot be found out: %s", *place, error)
            return None
        return _Due(replica, directory, dirtiness) if is_due(replica.log, dirtiness) else None

    async def _clean(self, due: _Due, runner: Runner, config: BrokerConfig, *, share: int) -> bool:
        """False: there is no use in trying it again before the next turn."""
        replica = due.replica
        job = job_for(
            replica.log,
            due.dirtiness,
            now_ms=self._table.now_ms(),
            map_bytes=config.log_cleaner_dedupe_buffer_size // share,
            map_load_factor=config.log_cleaner_io_buffer_load_factor,
            hash_seed=int.from_bytes(random_bytes(SEED_BYTES), "big"),
            bytes_per_second=config.log_cleaner_io_max_bytes_per_second / share,
            is_patient=monotonic() >= self._patient_from and due.dirtiness.all_bytes >= PATIENT_BYTES_MIN,
        )
        try:
            await self._note_beginning(due)
            stats = await self._run(job, replica, runner)
        except (CleaningFailed, StorageError, OSError) as error:
            runner.close()
            self._note_failure(replica, error)
            return isinstance(error, CleaningStarved)  # which is tried again at once, in another way
        return await self._note_success(due, job, stats)

    async def _run(self, job: CleaningJob, replica: Replica, runner: Runner) -> CleaningStats:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._waiting, runner.begin, job)
        while True:
            result = await loop.run_in_executor(self._waiting, runner.next_result)
            if isinstance(result, CleaningStats):
                return result
            holder = self._table.holder_of(replica.topic_id, replica.index, replica.log)
            if holder is None or holder.is_truncating or self._is_moving((replica.topic, replica.index)):
                reason = f"{replica.topic}-{replica.index} is being truncated, moves to another directory, or is gone"
                raise CleaningFailed(reason, is_passing=True)
            swap(replica.log, result)

    async def _note_beginning(self, due: _Due) -> None:
        """Before the first segment is cleaned: whoever finds that offsets are missing has to know that it is no damage,
        even if this cleaning does not come to its end and is the last. After a kill, what lies past the recovery point
        on disk is read again, and a gap there taken for what was never synced, unless the topic is still compacted."""
        place, directory = (due.replica.topic, due.replica.index), due.directory
        is_known = place in directory.cleaned_up_to
        directory.cleaned_up_to.setdefault(place, due.dirtiness.first_dirty_offset)
        try:
            if not is_known:
                await self._on_thread(directory, directory.write_cleaned_up_to)
            if directory.noted_recovery_point(place) < due.dirtiness.end_offset:
                await self._on_thread(directory, directory.write_recovery_points)
        except OSError as error:
            raise CleaningFailed(f"what is cleaned cannot be noted: {error}", is_passing=True) from error

    async def _on_thread(self, directory: LogDirectory, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads.of(directory), work)

    def _note_failure(self, replica: Replica, error: Exception) -> None:
        name = f"{replica.topic}-{replica.index}"
        self.suspect_disk(replica.log.directory, error)
        if isinstance(error, CleaningStarved):
            self._patient_from = monotonic() + IMPATIENT_SECONDS
        if replica.log.is_offline or (isinstance(error, CleaningFailed) and error.is_passing):
            log.warning("%s was not cleaned, it will be tried again: %s", name, error)
            return
        self.uncleanable[replica.topic_id, replica.index] = str(error)
        log.error("%s cannot be cleaned and is left alone until the next start: %s", name, error)

    async def _note_success(self, due: _Due, job: CleaningJob, stats: CleaningStats) -> bool:
        """False if it cannot be noted: then it is not tried again at once."""
        replica, directory = due.replica, due.directory
        place = replica.topic, replica.index

        def is_same() -> bool:
            """Neither truncated since, nor deleted: another topic may have its name."""
            return replica.log.generation == job.generation and directory.logs.get(place) is replica.log

        try:
            if is_same():
                # If a power cut undid the renames and not the note, what was to go would stay as if it were clean: a
                # value, and the tombstone after it, which goes some day.
                await self._on_thread(directory, partial(replica.log.files.sync_directory, job.directory))
            if is_same():
                directory.cleaned_up_to[place] = stats.end_offset
                await self._on_thread(directory, directory.write_cleaned_up_to)
        except OSError as error:
            log.error("how far %s is clean cannot be noted: %s", job.directory, error)
            self.suspect_disk(job.directory, error)
            return False
        self.cleaned_logs += 1
        self.bytes_before += stats.bytes_before
        self.bytes_after += stats.bytes_after
        log.info(
            "%s-%d: cleaned up to offset %d; %d records in %d bytes became %d in %d",
            replica.topic,
            replica.index,
            stats.end_offset,
            stats.records_before,
            stats.bytes_before,
            stats.records_after,
            stats.bytes_after,
        )
        return True
