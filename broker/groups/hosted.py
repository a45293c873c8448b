"""One shard with its partition: appends what it decides, answers when that is committed, wakes it in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from broker.config import BrokerConfig
from broker.coordination.loading import replay_log
from broker.faults import EXPECTED, fault_of
from broker.groups.alarms import Alarms
from broker.groups.batch import build
from broker.groups.consumer import group as _consumer_group  # noqa: F401  its records must be known before a log is read
from broker.groups.outcome import Outcome
from broker.groups.records import decode
from broker.groups.shard import Shard
from broker.later import Later
from broker.metadata.image import Image
from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from protocol.schema import EncodeError

log = logging.getLogger(__name__)

# What a failed append means to a client: look for the coordinator again, try again, or give up.
_CODES = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class HostedShard:
    def __init__(
        self,
        partition: Partition,
        *,
        config: BrokerConfig,
        image: Image,
        now_ms: Callable[[], int],
        seekers: Callable[[str, int], int],
    ) -> None:
        self.partition = partition
        self.now_ms = now_ms
        self.is_loading = True
        self.shard = Shard(config=config, image=image, random=Random(), alarms=Alarms(self._set_timer), seekers=seekers)
        self._loop = asyncio.get_running_loop()
        self._written = -1  # the last offset that we appended
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._task: asyncio.Task[None] | None = None

    # -- loading -----------------------------------------------------------

    def load(self, *, then: Callable[[HostedShard], None]) -> None:
        if self.partition.log.end_offset == self.partition.log.start_offset:
            self._start(then)
        else:
            self._task = asyncio.create_task(self._load(then))

    async def _load(self, then: Callable[[HostedShard], None]) -> None:
        started, count = self._loop.time(), 0
        name = f"{self.partition.topic}-{self.partition.index}"
        try:
            piece_bytes = self.shard.config.offsets_load_buffer_size
            for replayed in replay_log(
                self.shard, self.partition.log, decode=decode, piece_bytes=piece_bytes, transactions=self.shard
            ):
                count += replayed
                await asyncio.sleep(0)
        except EXPECTED as error:
            log.error("%s cannot be loaded, its groups are not served: %s", name, error)
            return
        self._start(then)
        took_ms = (self._loop.time() - started) * 1000
        log.info("%s: %d groups from %d records in %.0f ms", name, len(self.shard.groups), count, took_ms)

    def _start(self, then: Callable[[HostedShard], None]) -> None:
        self.is_loading = False
        self._written = self.partition.log.end_offset - 1  # what was read may not be committed yet
        self.run_all(self.shard.loaded(self.now_ms()))
        then(self)

    # -- deciding, appending, applying -------------------------------------

    def finish(self, result: Any) -> Any:
        """What the shard made of a request, turned into what a handler may return."""
        shard = self.shard
        if type(result) is Outcome:
            try:
                self._append(result)
            except EXPECTED as error:
                return result.refuse(self._code_of(error))
            except EncodeError as error:  # a text that is longer than the record's format can hold
                log.warning("%s-%d: %s", self.partition.topic, self.partition.index, error)
                return result.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            refuse = result.refuse
            result = shard.apply(result)
        else:
            refuse = None
        if shard.replies:
            self._send_replies()
        if self._written >= self.partition.high_watermark and type(result) is not Later:
            return self._when_committed(result, refuse)
        return result

    def run_all(self, outcomes: Iterable[Outcome]) -> None:
        """Outcomes that nobody waits for."""
        for outcome in outcomes:
            self.finish(outcome)
        if self.shard.replies:
            self._send_replies()

    def _append(self, outcome: Outcome) -> None:
        now_ms = self.now_ms()
        batch, header = build(outcome.records, now_ms=now_ms, producer=outcome.producer)
        self._written = self.partition.append_internal(batch, header, now_ms).last_offset

    def _code_of(self, error: Exception) -> ErrorCode:
        code = fault_of(error, where=f"{self.partition.topic}-{self.partition.index}").code
        return _CODES.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _send_replies(self) -> None:
        replies, self.shard.replies = self.shard.replies, []
        for later, response in replies:
            if self._written >= self.partition.high_watermark:
                self._when_committed(response, None).then(later.resolve)
            else:
                later.resolve(response)

    def _when_committed(self, result: Any, refuse: Callable[[ErrorCode], Any] | None) -> Later[Any]:
        """Nobody is told of what a failure could still undo."""
        later: Later[Any] = Later()

        def reached(error: Exception | None) -> None:
            if error is None:
                later.resolve(result)
            elif refuse is not None:
                later.resolve(refuse(ErrorCode.NOT_COORDINATOR))
            elif isinstance(result, ErrorCode):
                later.resolve(ErrorCode.NOT_COORDINATOR)
            elif hasattr(result, "error_code"):
                later.resolve(type(result)(error_code=ErrorCode.NOT_COORDINATOR))
            else:
                later.resolve(result)

        self.partition.await_mark(self._written, reached, impatient=True)
        return later

    @property
    def is_settled(self) -> bool:
        """Whether everything that the groups' state rests on is committed."""
        return self._written < self.partition.high_watermark

    def when_settled(self, told: Callable[[Exception | None], None]) -> None:
        self.partition.await_mark(self._written, told, impatient=True)

    # -- time --------------------------------------------------------------

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None and self._timer_at_ms <= at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        # One millisecond late rather than a moment early, which would be a moment in vain.
        self._timer = self._loop.call_later(max(at_ms + 1 - self.now_ms(), 0) / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.run_all(self.shard.wake(self.now_ms()))
        next_ms = self.shard.alarms.next_ms
        if next_ms is not None:
            self._set_timer(next_ms)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.shard.close()
        self._send_replies()
