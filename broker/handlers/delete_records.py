"""DeleteRecords: move the start of a partition up. Records below it cannot be read again, whole segments go (KIP-107).

The answer comes when no live replica has the records any more, so that they do not return with the next leader, or
when the request's time is over. Offset -1 means the high watermark.

v2: flexible (KIP-482)
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from tidemark.broker.core.deferred import Deferred, MaybeDeferred
from tidemark.broker.core.errors import EXPECTED, Refused, fault_of
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.replication.housekeeping import Housekeeping
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

TO_THE_HIGH_WATERMARK: Final = -1


@handles(DeleteRecordsRequest, DeleteRecordsResponse)
def delete_records(
    request: DeleteRecordsRequest, _call: Call, *, replicas: ReplicaTable, housekeeping: Housekeeping
) -> Job[MaybeDeferred[DeleteRecordsResponse]]:
    deleting = _Deleting(replicas)
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        result.partitions = yield from in_slices(partial(deleting.delete, topic.name), topic.partitions)
        deleting.response.topics.append(result)
    if not deleting.any_moved:
        return deleting.finish(request.timeout_ms)
    written = housekeeping.checkpoint()  # a crash must not bring deleted records back
    return _after(written, deleting.finish(request.timeout_ms))


def _after(written: Deferred[None], answer: MaybeDeferred[DeleteRecordsResponse]) -> Deferred[DeleteRecordsResponse]:
    """The answer, but not before the checkpoint is on disk."""
    deferred: Deferred[DeleteRecordsResponse] = Deferred()

    def go_on(_: None) -> None:
        if isinstance(answer, Deferred):
            answer.then(deferred.resolve)
        else:
            deferred.resolve(answer)

    written.then(go_on)
    return deferred


class _Deleting:
    def __init__(self, replicas: ReplicaTable) -> None:
        self.response = DeleteRecordsResponse()
        self.any_moved = False
        self._replicas = replicas
        self._pending: dict[int, tuple[Partition, int, DeleteRecordsPartitionResult]] = {}
        self._deferred: Deferred[DeleteRecordsResponse] | None = None

    def delete(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
        try:
            partition = self._replicas.leader_of(topic, asked.partition_index)
            offset = _offset(partition, asked)
            self.any_moved = self.any_moved or offset > partition.log.start_offset
            partition.delete_before(offset)
            result.low_watermark = partition.low_watermark
            if result.low_watermark < offset:
                self._pending[id(result)] = (partition, offset, result)
        except EXPECTED as error:
            result.error_code = fault_of(error, where=f"{topic}-{asked.partition_index}").code
        return result

    def finish(self, timeout_ms: int) -> MaybeDeferred[DeleteRecordsResponse]:
        if not self._pending:
            return self.response
        self._deferred = Deferred()
        self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, self._time_out)
        for key, (partition, offset, _) in list(self._pending.items()):
            partition.await_low_watermark(offset, partial(self._reached, key))
        return self._deferred

    def _reached(self, key: int, error: Exception | None) -> None:
        if (found := self._pending.pop(key, None)) is None:
            return
        partition, _, result = found
        if error is None:
            result.low_watermark = partition.low_watermark
        else:
            result.low_watermark = -1
            result.error_code = fault_of(error, where=f"{partition.topic}-{partition.index}").code
        if not self._pending:
            self._timer.cancel()
            self._answer()

    def _time_out(self) -> None:
        for partition, _, result in self._pending.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            result.low_watermark = partition.low_watermark
        self._pending.clear()
        self._answer()

    def _answer(self) -> None:
        assert self._deferred is not None
        self._deferred.resolve(self.response)


def _offset(partition: Partition, asked: DeleteRecordsPartition) -> int:
    if partition.config.cleanup_policy == {"compact"}:
        raise Refused(ErrorCode.POLICY_VIOLATION, "Records of a topic that is only compacted cannot be deleted.")
    offset = partition.high_watermark if asked.offset == TO_THE_HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= partition.high_watermark:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the high watermark.")
    return offset
