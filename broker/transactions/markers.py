"""Transaction markers for partitions that this node leads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import EXPECTED, Refused, fault_of
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.metadata.internal import OFFSETS_TOPIC
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import EndTransaction
from tidemark.storage import PendingAppend

log = logging.getLogger(__name__)

# No retry: the marker is written, the partition was deleted, or a newer coordinator has taken over.
FINAL_CODES = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


class MarkerWriter(Protocol):
    """Writes a marker to a partition, here or (by WriteTxnMarkers) at another leader."""

    def write(
        self, marker: EndTransaction, *, version: int, topic: str, index: int
    ) -> ErrorCode | Deferred[ErrorCode]: ...


class LocalMarkerWriter:
    def __init__(self, *, replicas: ReplicaTable, groups: GroupCoordinator) -> None:
        self._replicas = replicas
        self._groups = groups

    def write(self, marker: EndTransaction, *, version: int, topic: str, index: int) -> ErrorCode | Deferred[ErrorCode]:
        """NONE once the marker is committed."""
        try:
            partition = self._replicas.leader_of(topic, index)
        except EXPECTED as error:
            return fault_of(error, where=f"{topic}-{index}").code
        append = partial(self._append, partition, marker, version=version)
        if partition.append_queue is None:
            return append()
        turn = _MarkerTurn(append)
        self._replicas.append_queues.join(partition, None, turn)
        return turn.written

    def _append(self, partition: Partition, marker: EndTransaction, *, version: int) -> ErrorCode | Deferred[ErrorCode]:
        """Everything that came before is in the log."""
        topic, index = partition.topic, partition.index
        try:
            if self._replicas.leader_of(topic, index) is not partition:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            if topic == OFFSETS_TOPIC:
                self._check_loaded(index)
            appended = partition.append_marker(marker, version=version, now_ms=self._replicas.now_ms())
        except EXPECTED as error:
            return fault_of(error, where=f"{topic}-{index}").code
        if topic == OFFSETS_TOPIC:
            self._groups.end_transaction(index, marker)
        if not partition.must_wait(appended.last_offset):
            return ErrorCode.NONE
        deferred: Deferred[ErrorCode] = Deferred()
        partition.await_high_watermark(appended.last_offset, _resolver(deferred, f"{topic}-{index}"))
        return deferred

    def _check_loaded(self, index: int) -> None:
        if (code := self._groups.state_of(index)) is not ErrorCode.NONE:
            raise Refused(code, "The group coordinator is not ready.")


class _MarkerTurn:
    """A marker that waits for the batches before it (see `append_queues`)."""

    def __init__(self, append: Callable[[], ErrorCode | Deferred[ErrorCode]]) -> None:
        self._append = append
        self.written: Deferred[ErrorCode] = Deferred()

    def begin(self) -> None:
        try:
            code = self._append()
        except Exception:
            log.exception("a marker that waited was not appended")
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(code, Deferred):
            code.then(self.written.resolve)
        else:
            self.written.resolve(code)

    def finish(self, pending: PendingAppend) -> None:
        raise AssertionError("a marker is written at once")

    def refuse(self) -> None:
        self.written.resolve(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def header(self) -> None:
        return None


def _resolver(deferred: Deferred[ErrorCode], where: str) -> Callable[[Exception | None], None]:
    def reached(error: Exception | None) -> None:
        deferred.resolve(ErrorCode.NONE if error is None else fault_of(error, where=where).code)

    return reached
