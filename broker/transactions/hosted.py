"""One shard with its partition: appends what it decides, answers when that is committed, sends its markers then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from broker.config import BrokerConfig
from broker.coordination.loading import replay_log
from broker.faults import EXPECTED, fault_of
from broker.groups.batch import build
from broker.groups.outcome import Outcome
from broker.later import Later
from broker.replication.partition import Partition
from broker.transactions.markers import SETTLED, Markers
from broker.transactions.records import decode
from broker.transactions.shard import Order, TransactionShard
from broker.transactions.transaction import TopicPartition
from protocol.errors import ErrorCode
from protocol.schema import EncodeError

log = logging.getLogger(__name__)

RETRY_MS: Final = 100  # before a marker that could not be written is tried again

# What a failed append means to a client: look for the coordinator again, or try again.
_CODES = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class HostedTransactions:
    def __init__(
        self, partition: Partition, *, config: BrokerConfig, markers: Markers, now_ms: Callable[[], int]
    ) -> None:
        self.partition = partition
        self.now_ms = now_ms
        self.is_loading = True
        self.shard = TransactionShard(config=config, coordinator_epoch=partition.leader_epoch)
        self._markers = markers
        self._loop = asyncio.get_running_loop()
        self._written = -1  # the last offset that we appended
        self._task: asyncio.Task[None] | None = None
        self._retries: set[asyncio.TimerHandle] = set()
        self._closed = False

    # -- loading -----------------------------------------------------------

    def load(self) -> None:
        if self.partition.log.end_offset == self.partition.log.start_offset:
            self.is_loading = False
        else:
            self._task = asyncio.create_task(self._load())

    async def _load(self) -> None:
        started, count = self._loop.time(), 0
        name = f"{self.partition.topic}-{self.partition.index}"
        try:
            piece_bytes = self.shard.config.transaction_state_log_load_buffer_size
            for replayed in replay_log(self.shard, self.partition.log, decode=decode, piece_bytes=piece_bytes):
                count += replayed
                await asyncio.sleep(0)
        except EXPECTED as error:
            log.error("%s cannot be loaded, its transactions are not served: %s", name, error)
            return
        self.is_loading = False
        self._written = self.partition.log.end_offset - 1  # what was read may not be committed yet
        self.run_all(self.shard.loaded(self.now_ms()))
        took_ms = (self._loop.time() - started) * 1000
        log.info("%s: %d ids from %d records in %.0f ms", name, len(self.shard.transactions), count, took_ms)

    # -- deciding, appending, applying -------------------------------------

    def finish(self, result: Any) -> Any:
        """What the shard made of a request, turned into what a handler may return."""
        refuse = None
        if type(result) is Outcome:
            refuse = result.refuse
            try:
                self._append(result)
            except EXPECTED as error:
                return refuse(self._code_of(error))
            except EncodeError as error:  # a text that is longer than the record's format can hold
                log.warning("%s-%d: %s", self.partition.topic, self.partition.index, error)
                return refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            result = self.shard.apply(result)
        must_wait = self._written >= self.partition.high_watermark
        if self.shard.to_send:
            self._send(must_wait=must_wait)
        return self._when_committed(result, refuse) if must_wait else result

    def run_all(self, outcomes: Iterable[Outcome]) -> None:
        """Outcomes that nobody waits for."""
        for outcome in outcomes:
            self.finish(outcome)
        if self.shard.to_send:
            self._send(must_wait=self._written >= self.partition.high_watermark)

    def _append(self, outcome: Outcome) -> None:
        now_ms = self.now_ms()
        batch, header = build(outcome.records, now_ms=now_ms)
        self._written = self.partition.append_internal(batch, header, now_ms).last_offset

    def _code_of(self, error: Exception) -> ErrorCode:
        code = fault_of(error, where=f"{self.partition.topic}-{self.partition.index}").code
        return _CODES.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _when_committed(self, result: Any, refuse: Callable[[ErrorCode], Any] | None) -> Later[Any]:
        """Nobody is told of what a failure could still undo."""
        later: Later[Any] = Later()

        def reached(error: Exception | None) -> None:
            if error is None:
                later.resolve(result)
            else:
                later.resolve(_refused(result) if refuse is None else refuse(ErrorCode.NOT_COORDINATOR))

        self.partition.await_mark(self._written, reached, impatient=True)
        return later

    # -- markers -----------------------------------------------------------

    def _send(self, *, must_wait: bool) -> None:
        """A decision is carried out when it cannot be undone any more, and after its answer has left: the producer is
        told as soon as it is written down, and the markers are there before its next request is read."""
        orders, self.shard.to_send = self.shard.to_send, []
        if not must_wait:
            self._loop.call_soon(self._write_all, orders, None)
        else:
            self.partition.await_mark(self._written, partial(self._write_all, orders))

    def _write_all(self, orders: list[Order], error: Exception | None) -> None:
        if error is not None or self._closed:
            return
        for order in orders:
            if not order.partitions:
                self._settled(order, None)
            for each in sorted(order.partitions):
                self._write(order, each)

    def _write(self, order: Order, each: TopicPartition) -> None:
        if self._closed:
            return
        topic, index = each
        code = self._markers.write(order.marker, version=order.version, topic=topic, index=index)
        if isinstance(code, Later):
            code.then(partial(self._written_to, order, each))
        else:
            self._written_to(order, each, code)

    def _written_to(self, order: Order, each: TopicPartition, code: ErrorCode) -> None:
        if code not in SETTLED:
            log.warning("the marker of %s for %s-%d must wait: %s", order.transactional_id, *each, code.name)
            self._later(partial(self._write, order, each))
            return
        if code is not ErrorCode.NONE:
            log.warning("%s-%d takes no marker of %s: %s", *each, order.transactional_id, code.name)
        self._settled(order, each)

    def _settled(self, order: Order, each: TopicPartition | None) -> None:
        outcome = self.shard.marked(order, each, self.now_ms())
        if outcome is None or self._closed:
            return
        try:
            self._append(outcome)
        except EXPECTED as error:
            self._code_of(error)
            self._later(partial(self._settled, order, each))
            return
        self.shard.apply(outcome)

    def _later(self, action: Callable[[], None]) -> None:
        def run() -> None:
            self._retries.discard(handle)
            action()

        handle = self._loop.call_later(RETRY_MS / 1000, run)
        self._retries.add(handle)

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        for handle in self._retries:
            handle.cancel()
        self._retries.clear()


def _refused(result: Any) -> Any:
    """An answer of the same kind that says to ask another coordinator."""
    code = ErrorCode.NOT_COORDINATOR
    return code if isinstance(result, ErrorCode) else type(result)(error_code=code)
