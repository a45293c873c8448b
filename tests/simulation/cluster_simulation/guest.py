"""A broker that comes, takes part, and goes again: it is drained, stopped and unregistered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from cluster_simulation.administrator import WORTH_ANOTHER_TRY, reassignment
from cluster_simulation.history import Anomaly, History, Place
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidemark.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidemark.simulation import Cluster
from tidemark.simulation.client import RETRY_SECONDS, KafkaClient

PATIENCE_SECONDS: Final = 12.0  # for what may not happen while something else is down


class GuestKeeper:
    def __init__(
        self,
        name: str,
        client: KafkaClient,
        history: History,
        random: Random,
        places: Sequence[Place],
        *,
        cluster: Cluster,
        nodes: int,
    ) -> None:
        self.name = name
        self.client = client
        self.history = history
        self.random = random
        self.places = places
        self.cluster = cluster
        self.nodes = range(1, nodes + 1)
        self.guest = nodes + 1
        self.stopping = False

    async def run(self) -> None:
        """It ends when the guest is gone."""
        while not self.stopping:
            await self._visit()
            await asyncio.sleep(self.random.random() * 2)

    async def _visit(self) -> None:
        broker = self.cluster.add_broker(self.guest)
        self.cluster.world.after(0, broker.start)
        await self._within(PATIENCE_SECONDS, lambda: broker.is_ready)
        for topic, partition in self.random.sample([*self.places], min(2, len(self.places))):
            others = self.random.sample([*self.nodes], 2)
            await self._reassign(topic, partition, self.random.sample([*others, self.guest], 3))
        await asyncio.sleep(self.random.random() * 4)
        while True:
            await self._drain()
            self.cluster.world.after(0, broker.stop)
            if not await self._within(PATIENCE_SECONDS, lambda: not broker.is_running):
                self.cluster.world.after(0, broker.kill)
            broker.may_start = False
            if not await self._held():
                break  # nothing was put there while it stopped
            broker.may_start = True
            self.cluster.world.after(0, broker.start)
        await self._unregister()
        del self.cluster.brokers[self.guest]

    async def _within(self, seconds: float, done: Callable[[], bool]) -> bool:
        until = monotonic() + seconds
        while not done() and monotonic() < until:
            await asyncio.sleep(RETRY_SECONDS)
        return done()

    async def _drain(self) -> None:
        while held := await self._held():
            for topic, partition, replicas in held:
                left = [each for each in replicas if each != self.guest]
                missing = [each for each in self.nodes if each not in left]
                others = min(len(replicas) - len(left), len(missing))  # none, while a partition moves to the guest
                wanted = [*left, *self.random.sample(missing, others)]
                await self._reassign(topic, partition, wanted)
            await asyncio.sleep(0.3)

    async def _held(self) -> list[tuple[str, int, list[int]]]:
        """What the guest has a replica of."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self.client.ask_any(request, MetadataResponse, version=12, seconds=2.0)
        return [
            (topic.name or "", each.partition_index, each.replica_nodes)
            for topic in answer.topics
            for each in topic.partitions
            if self.guest in each.replica_nodes
        ]

    async def _reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        request = reassignment(topic, partition, replicas)
        answer: Any = await self.client.ask_any(request, AlterPartitionReassignmentsResponse, version=0)
        self.history.requests += 1
        if answer.error_code == ErrorCode.NONE:
            code = answer.responses[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                self.history.done["moved to or from a guest"] += 1
            elif code not in WORTH_ANOTHER_TRY:
                raise Anomaly(f"{self.name}: AlterPartitionReassignments answers {ErrorCode(code).name}")

    async def _unregister(self) -> None:
        request = UnregisterBrokerRequest(broker_id=self.guest)
        while True:
            answer = await self.client.ask_any(request, UnregisterBrokerResponse, version=0)
            if answer.error_code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
                self.history.done["UnregisterBroker"] += 1
                return
            if answer.error_code not in WORTH_ANOTHER_TRY:
                told = ErrorCode(answer.error_code).name
                raise Anomaly(f"{self.name}: UnregisterBroker answers {told}: {answer.error_message}")
            await asyncio.sleep(RETRY_SECONDS)
