"""Runs the transaction shard of one partition: sends the markers of a decision once it is committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.shard_host import ShardHost
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import EXPECTED
from tidemark.broker.core.limited_log import LimitedLog
from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.replication.partition import Partition
from tidemark.broker.transactions.markers import FINAL_CODES, MarkerWriter
from tidemark.broker.transactions.records import decode
from tidemark.broker.transactions.shard import PendingMarkers, TransactionShard
from tidemark.broker.transactions.transaction import TopicPartition
from tidemark.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

RETRY_MS: Final = 100  # before a failed marker is retried
RETRIES_LOGGED_MAX: Final = 3  # a partition without a leader costs ten retries a second for each transaction
RETRIES_LOGGED_SECONDS: Final = 30.0


class TransactionShardHost(ShardHost):
    DECODE = decode
    shard: TransactionShard

    def __init__(
        self, partition: Partition, *, config: BrokerConfig, markers: MarkerWriter, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(partition, now_ms=now_ms)
        self.shard = TransactionShard(config=config, coordinator_epoch=partition.leader_epoch)
        self._markers = markers
        self._retries: OrderedSet[asyncio.TimerHandle] = OrderedSet()
        self._log = LimitedLog(log, clock=self._loop.time, lines_max=RETRIES_LOGGED_MAX, seconds=RETRIES_LOGGED_SECONDS)

    def load(self) -> None:
        self._load(piece_bytes=self.shard.config.transaction_state_log_load_buffer_size)

    def holds(self, key: str) -> bool:
        return key in self.shard.transactions

    def _release_effects(self) -> None:
        if self.shard.markers_to_send:
            self._send(must_wait=self._written >= self.partition.high_watermark)

    # -- markers -----------------------------------------------------------

    def _send(self, *, must_wait: bool) -> None:
        """Markers are sent when the decision is committed, and after its answer: the producer is answered first, and
        local markers are written before its next request is read."""
        all_pending, self.shard.markers_to_send = self.shard.markers_to_send, []
        if not must_wait:
            self._loop.call_soon(self._write_all, all_pending, None)
        else:
            self.partition.await_high_watermark(self._written, partial(self._write_all, all_pending))

    def _write_all(self, all_pending: list[PendingMarkers], error: Exception | None) -> None:
        if error is not None or self._closed:
            return
        for pending in all_pending:
            if not pending.partitions:
                self._marker_written(pending, None)
            for each in sorted(pending.partitions):
                self._write(pending, each)

    def _write(self, pending: PendingMarkers, each: TopicPartition) -> None:
        if self._closed:
            return
        topic, index = each
        code = self._markers.write(pending.marker, version=pending.version, topic=topic, index=index)
        if isinstance(code, Deferred):
            code.then(partial(self._written_to, pending, each))
        else:
            self._written_to(pending, each, code)

    def _written_to(self, pending: PendingMarkers, each: TopicPartition, code: ErrorCode) -> None:
        if code not in FINAL_CODES:
            self._log.warning("the marker of %s for %s-%d is retried: %s", pending.transactional_id, *each, code.name)
            self._later(partial(self._write, pending, each))
            return
        if code is not ErrorCode.NONE:
            log.warning("%s-%d needs no marker of %s: %s", *each, pending.transactional_id, code.name)
        self._marker_written(pending, each)

    def _marker_written(self, pending: PendingMarkers, each: TopicPartition | None) -> None:
        result = self.shard.marked(pending, each, self.now_ms())
        if result is None or self._closed:
            return
        try:
            self._append(result)
        except EXPECTED as error:
            self._code_of(error)
            self._later(partial(self._marker_written, pending, each))
            return
        self.shard.apply(result)

    def _later(self, action: Callable[[], None]) -> None:
        def run() -> None:
            self._retries.discard(handle)
            action()

        handle = self._loop.call_later(RETRY_MS / 1000, run)
        self._retries.add(handle)

    def close(self) -> None:
        super().close()
        for handle in self._retries:
            handle.cancel()
        self._retries.clear()
