"""The requests that wire cases send most, with the fields they vary as arguments."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from harness.batches import ReadBatch, read_batches
from harness.waiting import eventually
from harness.wire import Wire

NO_ID = UUID(int=0)


def produce(
    wire: Wire,
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = 9,
    transactional_id: str | None = None,
) -> Any:
    """The answer for the one partition."""
    answer = wire.call(
        "Produce", version, transactional_id=transactional_id, acks=acks, timeout_ms=10_000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    )  # fmt: skip
    return answer.responses[0].partition_responses[0]


def partition_to_fetch(partition: int = 0, offset: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "partition": partition, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": 1 << 20, **changes,
    }  # fmt: skip


def fetch_fields(topic_id: UUID, *partitions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "max_wait_ms": 200, "min_bytes": 1, "max_bytes": 1 << 24, "isolation_level": 0, "session_id": 0,
        "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
        "topics": [{"topic_id": topic_id, "partitions": list(partitions)}] if partitions else [],
        **changes,
    }  # fmt: skip


def fetch(wire: Wire, topic_id: UUID, *partitions: dict[str, Any], version: int = 17, **changes: Any) -> Any:
    """The whole answer."""
    return wire.call("Fetch", version, **fetch_fields(topic_id, *partitions, **changes))


def fetched(answer: Any) -> dict[int, Any]:
    """The partitions of a fetch answer for one topic, in their order."""
    return {partition.partition_index: partition for topic in answer.responses for partition in topic.partitions}


def batches(partition: Any) -> list[ReadBatch]:
    return read_batches(bytes(partition.records or b""))


def list_offset(
    wire: Wire, topic: str, timestamp: int, *, partition: int = 0, version: int = 9, epoch: int = -1
) -> Any:
    """The answer for the one partition."""
    asked = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
    extra = {"timeout_ms": 10_000} if version >= 10 else {}
    answer = wire.call(
        "ListOffsets", version, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": [asked]}],
        **extra,
    )  # fmt: skip
    return answer.topics[0].partitions[0]


def end_offset(wire: Wire, topic: str, *, partition: int = 0) -> int:
    return int(list_offset(wire, topic, -1, partition=partition).offset)


def creatable(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **changes}


def create_topics(wire: Wire, *topics: dict[str, Any], validate_only: bool = False, version: int = 7) -> dict[str, Any]:
    """The answer's topics by name."""
    answer = wire.call("CreateTopics", version, topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
    return {topic.name: topic for topic in answer.topics}


def metadata(wire: Wire, *names: str, auto_create: bool = False, version: int = 12) -> Any:
    return wire.call(
        "Metadata", version, topics=[{"topic_id": NO_ID, "name": name} for name in names],
        allow_auto_topic_creation=auto_create, include_topic_authorized_operations=False,
    )  # fmt: skip


def new_producer_id(wire: Wire) -> int:
    """Apache Kafka's first answers after a start are COORDINATOR_LOAD_IN_PROGRESS: clients ask again, and so do we."""

    def ask() -> Any:
        answer = wire.call(
            "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        return answer if answer.error_code == 0 else None

    answer = eventually(ask, what="a producer id")
    assert answer.producer_epoch == 0
    return int(answer.producer_id)
