"""Replicas that move from one log directory of this broker to another (AlterReplicaLogDirs, KIP-113).

A move copies what is not written to any more, follows what is written meanwhile, and, when little is missing, lets the
log go on in the new directory between two turns of the event loop: for readers and writers nothing happens. The cleaner
leaves a log alone while it moves: what it takes away behind the copy would be missing in front of it.

Killed at any moment, the log is in the old directory, in the new one, or (marked) in both. A move that was under way
begins anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from tidemark.broker.metadata.image import UNASSIGNED
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_logs import Place, ReplicaLogs
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.sync_threads import SyncThreads
from tidemark.broker.replication.throttle import Throttle
from tidemark.environment import monotonic, new_executor
from tidemark.storage import (
    ColdRead,
    FileSlice,
    Log,
    LogDirectory,
    MoveFailed,
    SegmentCopy,
    SourceFailed,
    StorageError,
    append_parts,
    begin_move,
    catch_up,
    open_future,
    remove_directory,
)

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1 << 20
REST_BYTES_MAX: Final = 256 << 10  # copied on the event loop, with everything standing still
RETRY_SECONDS: Final = 1.0
TOLD_CHECK_SECONDS: Final = 0.05
THREADS: Final = 2
COLD_ROUNDS_MAX: Final = 8  # of bringing into memory what is forgotten again; then it is read all the same

T = TypeVar("T")


class DirectoryMoves:
    def __init__(self, table: ReplicaTable, logs: ReplicaLogs, sync_threads: SyncThreads) -> None:
        self._table = table
        self._logs = logs
        self._sync_threads = sync_threads
        self._threads = new_executor(THREADS, name="move")
        self._throttle = Throttle(lambda: table.config.replica_alter_log_dirs_io_max_bytes_per_second)
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self.under_way: dict[Place, Move] = {}
        self._is_stopped = False
        # Called with a replica that is in another directory now, and with trouble that may be a disk's.
        self.placed: Callable[[Replica], None] = lambda _replica: None
        self.suspect_disk: Callable[[str, BaseException], None] = lambda _path, _error: None

    def __contains__(self, place: Place) -> bool:
        return place in self.under_way

    def begin(self, replica: Replica, target: LogDirectory) -> None:
        """Moves a replica; if it is there already, a move elsewhere ends."""
        place = replica.topic, replica.index
        under_way = self.under_way.get(place)
        if under_way is not None and under_way.target is target:
            return
        self.cancel(place)
        if self._table.directory_of(replica) is not target:
            move = self.under_way[place] = Move(replica, target)
            self._tasks[place] = asyncio.get_running_loop().create_task(self._run(move, after=self._tasks.get(place)))

    def prefer(self, place: Place, target: LogDirectory) -> None:
        """The replica is not here. If it comes, it is to be in this directory."""
        self._logs.prefer(place, target)

    def cancel(self, place: Place) -> None:
        self.under_way.pop(place, None)  # its task sees that, and clears up

    def resume(self) -> None:
        """Moves that were under way when the last life ended."""
        for target in list(self._table.directories):
            interrupted, target.interrupted_moves = target.interrupted_moves, []
            for topic, index in interrupted:
                hosted = self._table.topics.get(topic)
                replica = None if hosted is None else hosted.replica(index)
                if replica is not None:
                    log.info("%s-%d: its move to %s begins anew", topic, index, target.path)
                    self.begin(replica, target)

    async def stop(self) -> None:
        """What is under way begins anew with the next start."""
        self._is_stopped = True
        for task in self._tasks.values():
            task.cancel()
        for task in list(self._tasks.values()):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._threads.shutdown(wait=True)

    # -- one move ----------------------------------------------------------

    async def _run(self, move: Move, *, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        place = move.place
        try:
            while self._is_wanted(move):
                if await self._try(move):
                    return
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            if self.under_way.get(place) is move:
                del self.under_way[place]
            if self._tasks.get(place) is asyncio.current_task():
                del self._tasks[place]

    async def _try(self, move: Move) -> bool:
        """False: something came in between, and it is tried again."""
        try:
            await self._copy(move)
            await self._finish(move)
        except (MoveFailed, StorageError, OSError) as error:
            log.warning("%s-%d does not move to %s: %s", *move.place, move.target.path, error)
            self.suspect_disk(move.log.directory if isinstance(error, SourceFailed) else move.target.path, error)
            await self._discard(move)
            return not self._is_wanted(move)
        return True

    def _is_wanted(self, move: Move) -> bool:
        is_known = self.under_way.get(move.place) is move and move.target in self._table.directories
        return is_known and not move.log.is_offline

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _check(self, move: Move) -> None:
        if not self._is_wanted(move):
            raise MoveFailed("it is not wanted there any more, or the log is offline")
        if move.current(self._table).is_truncating or move.log.generation != move.generation:
            raise MoveFailed("the log was truncated meanwhile")

    async def _pause(self, count: int) -> None:
        self._throttle.spent(count, monotonic())
        await asyncio.sleep(self._throttle.wait(monotonic()))

    async def _copy(self, move: Move) -> None:
        """Everything but the last few bytes, which come with the next append."""
        move.generation = move.log.generation
        self._check(move)  # a truncation may be under way, which has raised it already
        move.path = move.target.future_path(move.place)
        await self._on_thread(partial(begin_move, move.log.files, move.path))
        await self._copy_segments(move)
        await self._follow(move)

    async def _copy_segments(self, move: Move) -> None:
        source = move.log
        copied = -1
        while (segment := next((s for s in source.segments if s.base_offset > copied), None)) is not None:
            active = source.segments.active
            if segment is active:
                start = source.start_offset if copied >= 0 else active.base_offset
                work = partial(
                    open_future,
                    source,
                    move.path,
                    active_base=active.base_offset,
                    start_offset=start,
                    config=source.config,
                )
                move.future = await self._on_thread(work)
                return
            copy = SegmentCopy(source.files, segment, directory=move.path)
            try:
                await self._copy_segment(move, copy)
            except FileNotFoundError:
                if source.segments.consecutive([segment.base_offset]) is not None:
                    raise
                await self._on_thread(copy.undo)  # retention has deleted it meanwhile
            copied = move.copied_up_to = segment.base_offset

    async def _copy_segment(self, move: Move, copy: SegmentCopy) -> None:
        while count := await self._on_thread(copy.step):
            self._check(move)
            move.copied_bytes += count
            await self._pause(count)

    async def _follow(self, move: Move) -> None:
        """What is written meanwhile, until little is missing; then that is on disk, too."""
        await self._append_until_little_is_missing(move)
        await self._on_thread(move.opened.flush)
        source = self._table.directory_of(move.current(self._table))
        cleaned_up_to = None if source is None else source.cleaned_up_to.get(move.place)
        high_watermark = move.current(self._table).high_watermark
        move.target.expect(
            move.place, move.log, move.opened, high_watermark=high_watermark, cleaned_up_to=cleaned_up_to
        )
        await self._on_thread(move.target.write_expected)
        if source is not None:
            move.noted_in = source
            await self._on_thread(partial(source.note_move, move.place, move.target.id))
        await self._append_until_little_is_missing(move)

    async def _append_until_little_is_missing(self, move: Move) -> None:
        cold_rounds = 0
        while True:
            self._check(move)
            offset = max(move.opened.end_offset, move.log.start_offset)
            wait = cold_rounds >= COLD_ROUNDS_MAX
            try:
                parts = move.log.read(offset=offset, limit_bytes=CHUNK_BYTES, wait=wait)
            except ColdRead as cold:
                await self._on_thread(cold.load)
                cold.finish()
                cold_rounds += 1
                continue
            cold_rounds = 0
            size = sum(map(len, parts))
            if not parts or (size <= REST_BYTES_MAX and _is_end(move.log, parts[-1])):
                return
            await self._on_thread(partial(append_parts, move.log, move.opened, parts))
            await self._pause(size)

    async def _finish(self, move: Move) -> None:
        """The log goes on in the new directory; the old one goes when that is sure to last."""
        await self._rest(move)
        replica = move.current(self._table)
        source = self._table.directory_of(replica)
        if source is None or replica.is_truncating:
            raise MoveFailed("the log is not at rest")
        place, target = move.place, move.target
        catch_up(move.log, move.opened)
        target.receive(place, move.log, move.opened)
        replica.use_threads(self._sync_threads.of_log(move.log))
        if isinstance(replica, Partition):
            replica.writers = self._table.writers_of(move.log)
        move.is_over = True
        source.release(place)
        self._logs.moved(place, source, target)
        log.info("%s-%d is in %s now", *place, target.path)
        self.placed(replica)
        try:
            await asyncio.shield(asyncio.ensure_future(self._clear_up(move, source)))
        except OSError as error:  # the next start does it
            log.error("%s-%d: what is left of it in %s cannot be removed: %s", *place, source.path, error)

    async def _rest(self, move: Move) -> None:
        """Returns when no thread writes to the log any more, and before the next one does."""
        self._check(move)
        while move.log.is_appending:
            replica = move.current(self._table)
            assert isinstance(replica, Partition), "a follower's log is not written to by other threads"
            await replica.written()
            self._check(move)

    async def _clear_up(self, move: Move, source: LogDirectory) -> None:
        """The new name has to last before the old one goes."""
        target = move.target
        await self._on_thread(partial(target.files.sync_directory, target.path))
        if not await self._controller_knows(move):
            return
        source.remove_moved(move.place, delay_ms=move.log.config.file_delete_delay_ms)
        await self._on_thread(partial(source.files.sync_directory, source.path))
        await self._on_thread(partial(target.remove_mark, move.place))

    async def _controller_knows(self, move: Move) -> bool:
        """Waits for it: the old directory does not go before. If the new disk were lost, a start would find the log
        nowhere, not even in what the metadata calls lost, and begin it anew. (Kafka asks the controller before it moves
        on.) False: the node stops, or the new disk has failed, and what there is stays."""
        while not self._is_stopped and move.target in self._table.directories:
            hosted = self._table.topics_by_id.get(move.topic_id)
            if hosted is None:
                return True  # deleted
            if hosted.image.partitions[move.place[1]].directory_of(self._table.node_id) in (UNASSIGNED, move.target.id):
                return True
            await asyncio.sleep(TOLD_CHECK_SECONDS)
        return False

    async def _discard(self, move: Move) -> None:
        if move.is_over:
            return
        move.target.unexpect(move.place)
        move.future = None
        if move.noted_in is not None:
            with contextlib.suppress(OSError):
                await self._on_thread(partial(move.noted_in.forget_move, move.place))
            move.noted_in = None
        path, move.path = move.path, ""
        if path:
            with contextlib.suppress(OSError):
                await self._on_thread(partial(remove_directory, move.log.files, path))


class Move:
    def __init__(self, replica: Replica, target: LogDirectory) -> None:
        self.place: Place = (replica.topic, replica.index)
        self.topic_id = replica.topic_id
        self.log = replica.log
        self.target = target
        self.generation = replica.log.generation
        self.path = ""
        self.future: Log | None = None
        self.copied_bytes = 0
        self.copied_up_to = -1
        self.is_over = False
        self.noted_in: LogDirectory | None = None  # the old directory says where the log may be

    @property
    def opened(self) -> Log:
        assert self.future is not None, "its segments are still being copied"
        return self.future

    @property
    def size_bytes(self) -> int:
        return self.copied_bytes if self.future is None else self.future.size_bytes

    @property
    def offset_lag(self) -> int:
        reached = max(self.copied_up_to, self.log.start_offset) if self.future is None else self.future.end_offset
        return max(self.log.end_offset - reached, 0)

    def current(self, table: ReplicaTable) -> Replica:
        """The replica that has the log by now, as leader or follower."""
        replica = table.holder_of(self.topic_id, self.place[1], self.log)
        if replica is None:
            raise MoveFailed("this broker has it no more")
        return replica


def _is_end(source: Log, part: FileSlice) -> bool:
    active = source.segments.active
    return part.file is active.file and part.position + part.length == active.size
