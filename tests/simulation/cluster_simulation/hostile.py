"""A client that sends what no client should. Others must not notice, and no node may fall over it."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from random import Random
from typing import Final

from cluster_simulation.history import History, Place
from tidemark.broker.peers import PeerLink
from tidemark.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidemark.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.simulation.client import GROUP, KafkaClient

PORTS: Final = (9092, 9093)
SECONDS_MAX: Final = 2.0
IN_FLIGHT_MAX: Final = 256  # requests of a connection that a broker takes before it has answered the first
STRING_MAX: Final = 32_767


class Hostile:
    def __init__(
        self, name: str, client: KafkaClient, history: History, random: Random, places: list[Place], *, nodes: int
    ) -> None:
        self.name = name
        self.client = client
        self.history = history
        self.random = random
        self.places = places
        self.nodes = nodes
        self.stopping = False

    async def run(self) -> None:
        doings = [
            self.garbage,
            self.half_a_frame,
            *[self.forged_replica] * 6,
            self.truncated_request,
            self.hang_up_early,
            self.long_name_behind_long_polls,
        ]
        while not self.stopping:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(SECONDS_MAX):
                    await self.random.choice(doings)()
            await asyncio.sleep(self.random.random() * 0.6)
        await self.client.close()

    async def _send(self, data: bytes, *, then_wait: float = 0.0) -> None:
        self.history.requests += 1
        host = f"node-{self.random.randint(1, self.nodes)}"
        _, writer = await asyncio.open_connection(host, self.random.choice(PORTS))
        writer.write(data)
        await asyncio.sleep(then_wait)
        writer.close()

    async def garbage(self) -> None:
        await self._send(self.random.randbytes(self.random.randrange(1, 300)), then_wait=0.2)

    async def half_a_frame(self) -> None:
        """A large request is announced, and does not come."""
        await self._send(struct.pack(">ihhi", self.random.choice((100, 90 << 20)), 0, 9, 1), then_wait=1.5)

    async def truncated_request(self) -> None:
        """A known API with a body that ends too soon, or is noise."""
        key, version = (
            self.random.choice((0, 1, 3, 8, 10, 11, 12, 19, 22, 24, 26, 28, 52, 53)),
            self.random.randint(0, 9),
        )
        body = struct.pack(">hhih", key, version, 7, -1) + self.random.randbytes(self.random.randrange(60))
        await self._send(struct.pack(">i", len(body)) + body, then_wait=0.2)

    async def hang_up_early(self) -> None:
        """Many questions, and no ear for the answers."""
        question = struct.pack(">hhihi", 3, 1, 7, -1, -1)
        await self._send((struct.pack(">i", len(question)) + question) * 50)

    async def long_name_behind_long_polls(self) -> None:
        """The broker comes to the name when somebody's batch ends the polls; a text that quotes it fits no answer."""
        topic, partition = self.random.choice(self.places)
        await self.client.refresh(topic)
        address = await self.client.leader_of(topic, partition)
        link = PeerLink(*address, client_id=self.name)
        groups = [f"{self.name}-{number}" for number in range(8)]
        asked = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=groups)
        told = await link.send(asked, version=4, timeout=1.0, response=FindCoordinatorResponse)
        here = [each.key for each in told.coordinators if (each.host, each.port) == address]
        end = self.history.ends[topic, partition]
        fetched = FetchPartition(partition=partition, fetch_offset=end, partition_max_bytes=1 << 20)
        poll = FetchRequest(max_wait_ms=5000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[fetched])])
        joins = ConsumerGroupHeartbeatRequest(
            group_id=here[0],
            member_id=self.name,
            rebalance_timeout_ms=1000,
            server_assignor="x" * (STRING_MAX - 7),
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        answers = [link.begin(poll, version=12) for _ in range(IN_FLIGHT_MAX)] + [link.begin(joins, version=1)]
        self.history.requests += len(answers)
        try:
            await asyncio.wait([each for each in answers if each is not None], timeout=1.0)
        finally:
            link.hang_up()
            await asyncio.gather(*(each for each in answers if each is not None), return_exceptions=True)
            await link.close()

    async def forged_replica(self) -> None:
        """Fetches as if it were one of the brokers, from ahead: nothing may be acknowledged because of it."""
        topic, partition = self.random.choice(self.places)
        found = (await self.client.refresh(topic)).topics[0]
        told = next(each for each in found.partitions if each.partition_index == partition)
        followers = [each for each in told.replica_nodes if each != told.leader_id]
        asked = FetchPartition(
            partition=partition,
            current_leader_epoch=told.leader_epoch,
            fetch_offset=self.history.ends[topic, partition] + self.random.choice((0, 1, 2, 5)),
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.random.choice(followers), replica_epoch=-1),
            max_wait_ms=100,
            min_bytes=1,
            session_id=0,
            session_epoch=0,
            topics=[FetchTopic(topic_id=found.topic_id, partitions=[asked])],
        )
        address = await self.client.leader_of(topic, partition)
        await self.client.ask(address, request, FetchResponse, version=17, seconds=1.0)
