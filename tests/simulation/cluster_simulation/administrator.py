"""An administrator: topics that come and go, settings, reassignments, elections, deleted records."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from cluster_simulation.clients import RETRIABLE, Producer
from cluster_simulation.history import Anomaly, History, Place
from tidemark.broker.peers import PeerUnavailable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemark.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidemark.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidemark.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidemark.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidemark.protocol.messages.elect_leaders import TopicPartitions as ElectedPartitions
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidemark.simulation.client import RETRY_SECONDS, KafkaClient

TOPIC: Final = 2  # a resource's type
SET: Final = 0
EARLIEST: Final = -2
LATEST: Final = -1
WORTH_ANOTHER_TRY: Final = RETRIABLE | {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_REPLICATION_FACTOR,  # too few brokers are up
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REASSIGNMENT_IN_PROGRESS,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}


async def create_topic(
    client: KafkaClient, name: str, *, partitions: int, replicas: int, configs: dict[str, str] | None = None
) -> None:
    """Returns when it is there, whoever made it."""
    made = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=made)
    request = CreateTopicsRequest(topics=[topic])
    while True:
        answer = (await client.ask_any(request, CreateTopicsResponse, version=5)).topics[0]
        if answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        if answer.error_code not in WORTH_ANOTHER_TRY:
            raise Anomaly(f"CreateTopics {name} answers {ErrorCode(answer.error_code).name}: {answer.error_message}")
        await asyncio.sleep(RETRY_SECONDS)


def reassignment(topic: str, partition: int, replicas: list[int]) -> AlterPartitionReassignmentsRequest:
    moved = ReassignablePartition(partition_index=partition, replicas=replicas)
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[moved])])


class Administrator:
    names = 2  # of topics that come and go: a few of them are made again and again
    lives_seconds = 0.0

    def __init__(
        self,
        name: str,
        client: KafkaClient,
        history: History,
        random: Random,
        places: list[Place],
        *,
        nodes: int,
        may_relax: bool,
    ) -> None:
        """`may_relax`: whether min.insync.replicas may be lowered: only where no replica loses what it has."""
        self.name = name
        self.client = client
        self.history = history
        self.random = random
        self.places = places
        self.nodes = nodes
        self.stopping = False
        self._counts: dict[str, int] = {}
        self._lives = itertools.count()
        self._doings: list[Callable[[], Awaitable[None]]] = [
            self.live_a_topic,
            self.delete_records,
            self.reassign,
            self.elect,
            self.add_partition,
            self.change_flushing,
        ]
        if may_relax:
            self._doings += [self.change_min_isr] * 2

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.random.random() * 2)
            if not self.stopping:
                await self.random.choice(self._doings)()

    async def ask(self, request: object, response: type[Any], *, version: int) -> Any:
        """An answer of some broker, or None."""
        self.history.requests += 1
        try:
            async with asyncio.timeout(10):
                return await self.client.ask_any(request, response, version=version)
        except TimeoutError:
            return None

    def told(self, code: int, what: str) -> bool:
        if code == ErrorCode.NONE:
            self.history.done[what] += 1
            return True
        if code not in WORTH_ANOTHER_TRY:
            raise Anomaly(f"{self.name}: {what} answers {ErrorCode(code).name}")
        return False

    # Topics

    async def live_a_topic(self) -> None:
        """Create it, write to it, delete it; when it is made again, it is empty."""
        name = f"scratch-{self.random.randint(1, self.names)}-of-{self.name}"
        replicas = self.random.choice((2, 3))
        await create_topic(self.client, name, partitions=self.random.choice((1, 3)), replicas=replicas)
        await self.client.refresh(name)
        if await self.end_of(name) > 0:
            raise Anomaly(f"{name} was made anew, and has records")
        writer = Producer(f"{self.name}-{next(self._lives)}", self.client, self.history, self.random, [])
        try:
            async with asyncio.timeout(15):
                await writer.init()
                for _ in range(self.random.choice((0, 1, 3))):
                    await writer.produce((name, 0), [b"gone soon"])
        except TimeoutError:
            pass
        if self.random.random() < 0.5:  # or at once, while followers are still syncing
            await asyncio.sleep(self.random.random() * self.lives_seconds)
        await self._delete_topic(name)

    async def end_of(self, topic: str) -> int:
        return await self._offset(topic, 0, LATEST)

    async def _offset(self, topic: str, partition: int, timestamp: int) -> int:
        """Or -1, if it could not be had."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        try:
            async with asyncio.timeout(10):
                address = await self.client.leader_of(topic, partition)
                answer = await self.client.ask(address, request, ListOffsetsResponse, version=5)
        except (PeerUnavailable, TimeoutError):
            self.client.forget_leader(topic, partition)
            return -1
        told = answer.topics[0].partitions[0]
        if told.error_code != ErrorCode.NONE:
            self.client.forget_leader(topic, partition)
            return -1
        offset: int = told.offset
        return offset

    async def _delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        while True:
            answer = await self.client.ask_any(request, DeleteTopicsResponse, version=5)
            code = answer.responses[0].error_code
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self.told(code, "DeleteTopics"):
                self.client.forget_leader(name, 0)
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def add_partition(self) -> None:
        topic = self.random.choice(self.places)[0]
        found = (await self.client.refresh(topic)).topics[0]
        if not 0 < len(found.partitions) < 6 or self.random.random() < 0.5:
            return
        wanted = CreatePartitionsTopic(name=topic, count=len(found.partitions) + 1, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)
        answer = await self.ask(request, CreatePartitionsResponse, version=1)
        if answer is not None and answer.results[0].error_code != ErrorCode.INVALID_PARTITIONS:  # it was done before
            self.told(answer.results[0].error_code, "CreatePartitions")

    # Records

    async def delete_records(self) -> None:
        place = self.random.choice(self.places)
        start, end = await self._offset(*place, EARLIEST), await self._offset(*place, LATEST)
        if start < 0 or end <= start:
            return
        offset = start + int((end - start) * self.random.random() ** 2)
        self.history.may_be_deleted[place] = max(self.history.may_be_deleted[place], offset)
        asked = DeleteRecordsTopic(
            name=place[0], partitions=[DeleteRecordsPartition(partition_index=place[1], offset=offset)]
        )
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=4000)
        try:
            address = await self.client.leader_of(*place)
            answer = await self.client.ask(address, request, DeleteRecordsResponse, version=1)
        except PeerUnavailable:
            return
        told = answer.topics[0].partitions[0]
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return  # of a leader that was elected meanwhile, and has not heard of all that is committed
        if self.told(told.error_code, "DeleteRecords"):
            self.history.deleted[place] = max(self.history.deleted[place], told.low_watermark)

    # Settings

    async def _set(self, topic: str, name: str, value: str) -> None:
        resource = AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=topic,
            configs=[AlterableConfig(name=name, config_operation=SET, value=value)],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self.ask(request, IncrementalAlterConfigsResponse, version=0)
        if answer is not None:
            self.told(answer.responses[0].error_code, f"set {name}")

    async def change_min_isr(self) -> None:
        await self._set(self.random.choice(self.places)[0], "min.insync.replicas", self.random.choice(("1", "2")))

    async def change_flushing(self) -> None:
        await self._set(self.random.choice(self.places)[0], "segment.bytes", str(self.random.choice((1, 2)) << 20))

    # Replicas

    async def reassign(self) -> None:
        topic, partition = self.random.choice(self.places)
        replicas = self.random.sample(range(1, self.nodes + 1), self.random.choice((2, 3, 3)))
        request = reassignment(topic, partition, replicas)
        answer = await self.ask(request, AlterPartitionReassignmentsResponse, version=0)
        if answer is None or answer.error_code != ErrorCode.NONE:
            return
        self.told(answer.responses[0].partitions[0].error_code, "AlterPartitionReassignments")

    async def elect(self) -> None:
        topic, partition = self.random.choice(self.places)
        request = ElectLeadersRequest(
            topic_partitions=[ElectedPartitions(topic=topic, partitions=[partition])], timeout_ms=5000
        )
        answer = await self.ask(request, ElectLeadersResponse, version=1)
        if answer is None or answer.error_code != ErrorCode.NONE or not answer.replica_election_results:
            return
        code = answer.replica_election_results[0].partition_result[0].error_code
        if code not in (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
            self.told(code, "ElectLeaders")


class TopicMaker(Administrator):
    """Topics come and go all the time, some while nodes are down, and hardly any name comes back."""

    names = 100
    lives_seconds = 3.0

    async def run(self) -> None:
        while not self.stopping:
            await self.live_a_topic()
            await asyncio.sleep(self.random.random())


class Relaxer(Administrator):
    """Lowers min.insync.replicas while a replica is missing, as an operator does who wants to write on, and raises it
    when all are there; now and then the other way round."""

    async def run(self) -> None:
        while not self.stopping:
            topic, partition = self.random.choice(self.places)
            found = (await self.client.refresh(topic)).topics[0].partitions
            if partition < len(found):
                is_whole = len(found[partition].isr_nodes) == len(found[partition].replica_nodes)
                value = "2" if is_whole == (self.random.random() < 0.9) else "1"
                await self._set(topic, "min.insync.replicas", value)
            await asyncio.sleep(self.random.random())
