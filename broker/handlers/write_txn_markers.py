"""WriteTxnMarkers: end transactions in partitions that we lead, for another coordinator or an administrator."""

from __future__ import annotations

from typing import Any

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidemark.protocol.records import EndTransaction


@handles(WriteTxnMarkersRequest, WriteTxnMarkersResponse)
def write_txn_markers(request: WriteTxnMarkersRequest, _call: Call, *, transactions: TransactionCoordinator) -> Any:
    response = WriteTxnMarkersResponse()
    waiting = _Waiting(response)
    for asked in request.markers:
        marker = EndTransaction(
            asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch
        )
        result = WritableTxnMarkerResult(producer_id=asked.producer_id)
        response.markers.append(result)
        for topic in asked.topics:
            told = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(told)
            for index in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=index)
                told.partitions.append(answer)
                version = asked.transaction_version
                written = transactions.local_markers.write(marker, version=version, topic=topic.name, index=index)
                waiting.take(answer, written)
    return waiting.later if waiting.left else response


class _Waiting:
    """For the markers that are not committed yet."""

    def __init__(self, response: WriteTxnMarkersResponse) -> None:
        self.later: Deferred[WriteTxnMarkersResponse] = Deferred()
        self.left = 0
        self._response = response

    def take(self, answer: WritableTxnMarkerPartitionResult, code: ErrorCode | Deferred[ErrorCode]) -> None:
        if not isinstance(code, Deferred):
            answer.error_code = code
            return
        self.left += 1
        code.then(lambda late: self._committed(answer, late))

    def _committed(self, answer: WritableTxnMarkerPartitionResult, code: ErrorCode) -> None:
        answer.error_code = code
        self.left -= 1
        if not self.left:
            self.later.resolve(self._response)
