"""Runs a coordinator's shard on its partition: appends the records it decides on, answers once they are committed."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, TypeVar, cast

from tidemark.broker.coordination.batch import build
from tidemark.broker.coordination.loading import Decode, LogReplay, ReplaysTransactions
from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.core.deferred import Deferred, MaybeDeferred
from tidemark.broker.core.errors import EXPECTED, fault_of
from tidemark.broker.core.sliced_work import Interrupted, Job, SlicedWork
from tidemark.broker.replication.partition import Partition
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.schema import EncodeError

T = TypeVar("T")

log = logging.getLogger(__name__)

# What a failed append means to a client: find the coordinator again, give up, or (all others) retry.
_CODES: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class ShardHost(ABC):
    """`shard` is the state machine: pure, with `apply`, `replay` and `loaded`."""

    DECODE: ClassVar[Decode]
    shard: Any

    def __init__(self, partition: Partition, *, now_ms: Callable[[], int]) -> None:
        self.partition = partition
        self.now_ms = now_ms
        self.name = f"{partition.topic}-{partition.index}"
        self.is_loading = True
        self.skipped_records = 0  # by loading, because they could not be read
        self._loop = asyncio.get_running_loop()
        self._written = -1  # the last offset that we appended
        self._task: asyncio.Task[None] | None = None
        self._work = SlicedWork()
        self._closed = False

    @abstractmethod
    def _release_effects(self) -> None:
        """Hand out what a request caused beyond its own answer: answers to other requests, markers to send."""

    @abstractmethod
    def holds(self, key: str) -> bool:
        """Whether the group or the transactional id exists."""

    # -- loading -----------------------------------------------------------

    def _load(
        self,
        *,
        piece_bytes: int,
        transactions: ReplaysTransactions | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Replay the log, in a task unless it is empty, and call `then` when the shard is active."""
        if self.partition.log.end_offset == self.partition.log.start_offset:
            self._start(then)
        else:
            self._task = asyncio.create_task(self._replay(piece_bytes, transactions, then))

    async def _replay(
        self, piece_bytes: int, transactions: ReplaysTransactions | None, then: Callable[[], None]
    ) -> None:
        started = self._loop.time()
        replay = LogReplay(
            self.shard,
            self.partition.log,
            name=self.name,
            decode=type(self).DECODE,
            piece_bytes=piece_bytes,
            transactions=transactions,
        )
        try:
            for work in replay.run():
                if work is None:
                    await asyncio.sleep(0)
                else:
                    await self._loop.run_in_executor(self.partition.executor, work)
        except EXPECTED as error:
            log.error("%s cannot be loaded, and nothing in it is served: %s", self.name, error)
            return
        self.skipped_records = replay.skipped
        if replay.skipped:
            log.error("%s: %d records could not be read and are not served", self.name, replay.skipped)
        self._start(then)
        log.info("%s: %d records read in %.0f ms", self.name, replay.replayed, (self._loop.time() - started) * 1000)

    def _start(self, then: Callable[[], None]) -> None:
        self.is_loading = False
        self._written = self.partition.log.end_offset - 1  # what was read may not be committed yet
        self.run_all(self.shard.loaded(self.now_ms()))
        then()

    # -- deciding, appending, applying -------------------------------------

    def finish(self, result: Decision[T]) -> MaybeDeferred[T]:
        """Append the records of a result and apply it. Returns the answer, or a Deferred of it."""
        refuse: Callable[[ErrorCode], T] | None = None
        answer: MaybeDeferred[T]
        if not isinstance(result, CoordinatorResult):
            answer = result
        else:
            refuse = result.refuse
            try:
                self._append(result)
            except EXPECTED as error:
                return refuse(self._code_of(error))
            except EncodeError as error:  # a text that is longer than the record's format can hold
                log.warning("%s: %s", self.name, error)
                return refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            answer = self.shard.apply(result)
        self._release_effects()
        if self._written < self.partition.high_watermark or isinstance(answer, Deferred):
            return answer
        return self._when_committed(answer, refuse)

    def run_all(self, results: Iterable[CoordinatorResult]) -> None:
        """Results that no client waits for."""
        for result in results:
            self.finish(result)
        self._release_effects()

    def start_all(self, results: Iterable[CoordinatorResult | None]) -> Deferred[None] | None:
        """As `run_all`, for what may be very many: where it has None others may have their turn. What the first slice
        is enough for is done at once; otherwise there is a Deferred of the end."""
        job = self._finish_all(results)
        if not isinstance(self._work.start(job), Interrupted):
            return None
        return self._work.add(job)

    def _finish_all(self, results: Iterable[CoordinatorResult | None]) -> Job[None]:
        for result in results:
            if result is not None:
                self.finish(result)
                continue
            self._release_effects()
            yield
            if self._closed:
                return
        self._release_effects()

    def _append(self, result: CoordinatorResult) -> None:
        now_ms = self.now_ms()
        batch, header = build(result.records, now_ms=now_ms, producer=result.producer)
        self._written = self.partition.append_internal(batch, header, now_ms).last_offset

    def _code_of(self, error: Exception) -> ErrorCode:
        return _CODES.get(fault_of(error, where=self.name).code, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _when_committed(self, result: T, refuse: Callable[[ErrorCode], T] | None) -> Deferred[T]:
        """Clients must not see what a failover could still undo."""
        deferred: Deferred[T] = Deferred()

        def reached(error: Exception | None) -> None:
            if error is None:
                deferred.resolve(result)
            else:
                deferred.resolve(_refused(result) if refuse is None else refuse(ErrorCode.NOT_COORDINATOR))

        self.partition.await_high_watermark(self._written, reached, fails_below_min_isr=True)
        return deferred

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()


def _refused(result: T) -> T:
    """NOT_COORDINATOR as an answer of the same type, where the type has an error code."""
    code, make = ErrorCode.NOT_COORDINATOR, cast(Callable[..., T], type(result))
    if isinstance(result, ErrorCode):
        return make(code)
    return make(error_code=code) if hasattr(result, "error_code") else result
