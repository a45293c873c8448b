"""Transactions across brokers: markers for partitions that others lead, and requests to other coordinators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.transactions.markers import LocalMarkerWriter
from tidemark.broker.transactions.request_batcher import RequestBatcher
from tidemark.broker.transactions.transaction import TopicPartition
from tidemark.broker.transactions.transitions import Producer
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidemark.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidemark.protocol.records import EndTransaction

MARKERS_VERSION: Final = 2
ADD_VERSION: Final = 5
ANSWER_SECONDS_MAX: Final = 10.0


class _Marker(NamedTuple):
    marker: EndTransaction
    version: int
    topic: str
    partition: int


class ClusterMarkerWriter:
    """Sends markers to the leader of the partition, this node or another."""

    def __init__(self, local: LocalMarkerWriter, replicas: ReplicaTable) -> None:
        self.local = local
        self._replicas = replicas
        self._batcher: RequestBatcher[_Marker, ErrorCode] = RequestBatcher(
            send=self._send, failed=lambda _: ErrorCode.NOT_LEADER_OR_FOLLOWER
        )

    def write(self, marker: EndTransaction, *, version: int, topic: str, index: int) -> ErrorCode | Deferred[ErrorCode]:
        """NONE once the marker is committed."""
        replicas = self._replicas
        found = replicas.image.topics.get(topic)
        if replicas.peers is None or found is None or not 0 <= index < len(found.partitions):
            return self.local.write(marker, version=version, topic=topic, index=index)
        leader = found.partitions[index].leader
        if leader == replicas.node_id:
            return self.local.write(marker, version=version, topic=topic, index=index)
        if leader < 0:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return self._batcher.ask(leader, _Marker(marker, version, topic, index))

    def give_up(self, broker: int) -> None:
        self._batcher.give_up(broker)

    async def _send(self, broker: int, asked: Sequence[_Marker]) -> Sequence[ErrorCode]:
        assert self._replicas.peers is not None
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=each.marker.producer_id,
                    producer_epoch=each.marker.producer_epoch,
                    transaction_result=each.marker.commit,
                    topics=[WritableTxnMarkerTopic(name=each.topic, partition_indexes=[each.partition])],
                    coordinator_epoch=each.marker.coordinator_epoch,
                    transaction_version=each.version,
                )
                for each in asked
            ]
        )
        link = self._replicas.peers.to_broker(broker, purpose="transactions")
        response = await link.send(
            request, version=MARKERS_VERSION, timeout=ANSWER_SECONDS_MAX, response=WriteTxnMarkersResponse
        )
        codes = [
            ErrorCode(partition.error_code)
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        ]
        # The broker may not know a new topic yet: retry instead of leaving the transaction open there.
        lagging = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [ErrorCode.NOT_LEADER_OR_FOLLOWER if code == lagging else code for code in codes]


class AddPartitions(NamedTuple):
    """Partitions to add to a transaction, or (`verify_only`) to check for."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    verify_only: bool


Codes = Mapping[TopicPartition, ErrorCode]


class RemoteCoordinators:
    """Asks other brokers that coordinate a transactional id (KIP-890)."""

    def __init__(self, replicas: ReplicaTable) -> None:
        self._replicas = replicas
        self._batcher: RequestBatcher[AddPartitions, Codes] = RequestBatcher(send=self._send, failed=_unavailable)

    def ask(self, broker: int, addition: AddPartitions) -> Deferred[Codes]:
        return self._batcher.ask(broker, addition)

    def give_up(self, broker: int) -> None:
        self._batcher.give_up(broker)

    async def _send(self, broker: int, asked: Sequence[AddPartitions]) -> Sequence[Codes]:
        assert self._replicas.peers is not None
        request = AddPartitionsToTxnRequest(transactions=[_transaction(each) for each in asked])
        link = self._replicas.peers.to_broker(broker, purpose="transactions")
        response = await link.send(
            request, version=ADD_VERSION, timeout=ANSWER_SECONDS_MAX, response=AddPartitionsToTxnResponse
        )
        # A transactional id may occur twice, and answers come in any order; so they are matched by partition.
        codes: dict[tuple[str, TopicPartition], ErrorCode] = {
            (result.transactional_id, (topic.name, partition.partition_index)): ErrorCode(
                partition.partition_error_code
            )
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        unknown = ErrorCode(response.error_code) or ErrorCode.COORDINATOR_NOT_AVAILABLE
        return [{each: codes.get((one.transactional_id, each), unknown) for each in one.partitions} for one in asked]


def _unavailable(addition: AddPartitions) -> Codes:
    return dict.fromkeys(addition.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _transaction(addition: AddPartitions) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in sorted(addition.partitions):
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=addition.transactional_id,
        producer_id=addition.producer.producer_id,
        producer_epoch=addition.producer.epoch,
        verify_only=addition.verify_only,
        topics=list(topics.values()),
    )
