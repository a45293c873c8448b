"""WriteTxnMarkers (key 27): a coordinator, or an administrator, ends transactions in the partitions we lead.

From version 2 a marker says by which rules its transaction was made (KIP-1228).
"""

from __future__ import annotations

from tidemark.protocol.schema import array, boolean, int8, int16, int32, int64, message, string, struct


@struct
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: list[int] = array("int32")


@struct
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+")


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
