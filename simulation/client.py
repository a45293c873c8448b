"""A small asyncio client of a Kafka cluster, in terms of requests: who leads, who coordinates, ask and be answered.

It is what our own simulated workloads are written with. Programs that have a client of their own need not use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from tidemark.broker.peers import PeerLink, PeerUnavailable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

GROUP: Final = 0
TRANSACTION: Final = 1
RETRY_SECONDS: Final = 0.1
REQUEST_SECONDS_MAX: Final = 5.0


class KafkaClient:
    def __init__(self, bootstrap: Sequence[tuple[str, int]], *, client_id: str) -> None:
        self._bootstrap = [*bootstrap]
        self._client_id = client_id
        self._links: dict[tuple[str, int], PeerLink] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self._next = 0

    async def ask(
        self,
        address: tuple[str, int],
        request: object,
        response: type[T],
        *,
        version: int,
        seconds: float = REQUEST_SECONDS_MAX,
    ) -> T:
        """Raises PeerUnavailable if there is no answer; the request may have been carried out all the same."""
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = PeerLink(*address, client_id=self._client_id)
        return await link.send(request, version=version, timeout=seconds, response=response)

    async def ask_any(
        self, request: object, response: type[T], *, version: int, seconds: float = REQUEST_SECONDS_MAX
    ) -> T:
        """Of the brokers in turn, until one answers."""
        while True:
            known = list(dict.fromkeys([*self._addresses.values(), *self._bootstrap]))
            self._next += 1
            try:
                return await self.ask(
                    known[self._next % len(known)], request, response, version=version, seconds=seconds
                )
            except PeerUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    async def refresh(self, *topics: str) -> MetadataResponse:
        asked = [MetadataRequestTopic(name=each) for each in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = await self.ask_any(request, MetadataResponse, version=12, seconds=2.0)
        self._addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        for topic in answer.topics:
            self.topic_ids[topic.name or ""] = topic.topic_id
            for each in topic.partitions:
                self._leaders[topic.name or "", each.partition_index] = each.leader_id
        return answer

    async def leader_of(self, topic: str, partition: int) -> tuple[str, int]:
        while True:
            leader = self._leaders.get((topic, partition), -1)
            if leader in self._addresses:
                return self._addresses[leader]
            await self.refresh(topic)
            if self._leaders.get((topic, partition), -1) not in self._addresses:
                await asyncio.sleep(RETRY_SECONDS)

    def forget_leader(self, topic: str, partition: int) -> None:
        self._leaders.pop((topic, partition), None)

    async def coordinator_of(self, key: str, *, kind: int) -> tuple[str, int]:
        while True:
            if (kind, key) in self._coordinators:
                return self._coordinators[kind, key]
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = (await self.ask_any(request, FindCoordinatorResponse, version=4)).coordinators[0]
            if answer.error_code == ErrorCode.NONE:
                self._coordinators[kind, key] = (answer.host, answer.port)
            else:
                await asyncio.sleep(RETRY_SECONDS)

    def forget_coordinator(self, key: str, *, kind: int) -> None:
        self._coordinators.pop((kind, key), None)

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()
