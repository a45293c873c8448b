"""A client that speaks the transaction APIs over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidemark.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidemark.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidemark.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidemark.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidemark.protocol.records import Record, build_batch, iter_batches, iter_records

READ_COMMITTED = 1


class Transactional:
    """Each method is one request; codes come back as ErrorCodes."""

    def __init__(self, client: Any, *, topic: str = "t", group: str = "g") -> None:
        """`topic` and `group` are those of requests that name no other."""
        self.client = client
        self.topic = topic
        self.group = group
        self.node: Any = None

    async def prepare(self) -> None:
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
            [found] = (await self.client.call(request, FindCoordinatorResponse, 6)).coordinators
            assert found.error_code == 0, found.error_message

    async def init(
        self, name: str | None, *, timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1), version: int = 5
    ) -> Any:
        return await self.client.call(
            InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=producer[0],
                producer_epoch=producer[1],
            ),
            InitProducerIdResponse,
            version,
        )

    async def start(self, name: str, **options: Any) -> tuple[int, int]:
        while True:
            answer = await self.init(name, **options)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert answer.error_code == 0, ErrorCode(answer.error_code).name
                return answer.producer_id, answer.producer_epoch

    async def add(
        self, name: str, producer: tuple[int, int], *partitions: int, topic: str | None = None, version: int = 3
    ) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions))],
        )
        answer = await self.client.call(request, AddPartitionsToTxnResponse, version)
        [told] = answer.results_by_topic_v3_and_below
        return [ErrorCode(each.partition_error_code) for each in told.results_by_partition]

    async def add_offsets(
        self, name: str, producer: tuple[int, int], *, group: str | None = None, version: int = 4
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=group or self.group
        )
        return ErrorCode((await self.client.call(request, AddOffsetsToTxnResponse, version)).error_code)

    async def produce(
        self, name: str | None, producer: tuple[int, int], *values: bytes, sequence: int = 0, partition: int = 0,
        version: int = 12, transactional: bool = True, topic: str | None = None,
    ) -> ErrorCode:  # fmt: skip
        batch = build_batch(
            [Record(value=value) for value in values],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=transactional,
        )
        data = TopicProduceData(
            name=topic or self.topic, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))]
        )
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[data])
        answer = await self.client.call(request, ProduceResponse, version)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def end(self, name: str, producer: tuple[int, int], *, commit: bool, version: int = 5) -> Any:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        return await self.client.call(request, EndTxnResponse, version)

    async def commit(self, name: str, producer: tuple[int, int]) -> tuple[int, int]:
        answer = await self.end(name, producer, commit=True)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        return answer.producer_id, answer.producer_epoch

    async def abort(self, name: str, producer: tuple[int, int]) -> tuple[int, int]:
        answer = await self.end(name, producer, commit=False)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        return answer.producer_id, answer.producer_epoch

    async def commit_offset(
        self, name: str, producer: tuple[int, int], offset: int, *, version: int = 5, generation: int = -1,
        member: str = "", instance: str | None = None, group: str | None = None, topic: str | None = None,
    ) -> ErrorCode:  # fmt: skip
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=name, group_id=self.group if group is None else group,
            producer_id=producer[0], producer_epoch=producer[1],
            generation_id=generation, member_id=member, group_instance_id=instance,
            topics=[TxnOffsetCommitRequestTopic(name=topic or self.topic, partitions=[partition])],
        )  # fmt: skip
        answer = await self.client.call(request, TxnOffsetCommitResponse, version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def committed(self, *, stable: bool = False, group: str | None = None) -> tuple[int, ErrorCode]:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id=group or self.group, topics=topics)
        answer = await self.client.call(
            OffsetFetchRequest(groups=[asked], require_stable=stable), OffsetFetchResponse, 9
        )
        [found] = answer.groups[0].topics[0].partitions
        return found.committed_offset, ErrorCode(found.error_code)

    async def describe(self, name: str) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        return (await self.client.call(request, DescribeTransactionsResponse, 0)).transaction_states[0]

    async def fetch(
        self, offset: int = 0, *, partition: int = 0, wait_ms: int = 0, isolation: int = READ_COMMITTED
    ) -> Any:
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, isolation_level=isolation,
            topics=[FetchTopic(topic=self.topic, partitions=[asked])],
        )  # fmt: skip
        return (await self.client.call(request, FetchResponse, 12)).responses[0].partitions[0]

    async def read(self, *, partition: int = 0) -> list[bytes]:
        """What a consumer with read_committed gets to see, read as consumers read it."""
        answer = await self.fetch(partition=partition)
        aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions)
        skipping: set[int] = set()
        seen: list[bytes] = []
        for header, batch in iter_batches(bytes(answer.records or b"")):
            while aborted and aborted[0][0] <= header.last_offset:
                skipping.add(aborted.pop(0)[1])
            if header.is_control:
                skipping.discard(header.producer_id)
            elif header.producer_id not in skipping:
                seen += [record.value for record in iter_records(batch) if record.value is not None]
        return seen

    async def end_offset(self, *, isolation: int = READ_COMMITTED) -> int:
        asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topics = [ListOffsetsTopic(name=self.topic, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        answer = await self.client.call(request, ListOffsetsResponse, 9)
        return int(answer.topics[0].partitions[0].offset)

    async def settled(self, name: str, state: str) -> Any:
        async with asyncio.timeout(30):
            while (found := await self.describe(name)).transaction_state != state:
                await asyncio.sleep(0.01)
        return found
