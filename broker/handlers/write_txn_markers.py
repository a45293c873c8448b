"""WriteTxnMarkers: end transactions in partitions that this broker leads (KIP-98).

Asked by the transaction coordinator on another broker, or by an administrator who ends a hanging transaction (KIP-664).

v1: flexible (KIP-482)
v2: the version of the transaction, which says how epochs are checked (KIP-1228)
"""

from __future__ import annotations

from functools import partial

from tidemark.broker.core.deferred import CombinedAnswer, MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidemark.protocol.records import EndTransaction


@handles(WriteTxnMarkersRequest, WriteTxnMarkersResponse)
def write_txn_markers(
    request: WriteTxnMarkersRequest, _call: Call, *, transactions: TransactionCoordinator
) -> Job[MaybeDeferred[WriteTxnMarkersResponse]]:
    response = WriteTxnMarkersResponse()
    combined = CombinedAnswer(response)
    for asked in request.markers:
        marker = EndTransaction(
            asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch
        )
        result = WritableTxnMarkerResult(producer_id=asked.producer_id)
        response.markers.append(result)
        yield
        for topic in asked.topics:
            yield
            topic_result = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(topic_result)
            for index in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=index)
                topic_result.partitions.append(answer)
                version = asked.transaction_version
                written = transactions.local_markers.write(marker, version=version, topic=topic.name, index=index)
                combined.add(written, partial(setattr, answer, "error_code"))
                yield
    return combined.answer()
