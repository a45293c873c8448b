"""Who leads a partition or coordinates a group, by the metadata that this node has."""

from __future__ import annotations

from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.problems import Problem
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


class Leaders:
    def __init__(self, store: MetadataStore, calls: Calls) -> None:
        self._store = store
        self._calls = calls

    async def partition_count(self, topic: str, caller: HttpCaller, *, create: bool = False) -> int:
        """Raises Problem if there is no such topic, or the caller may not know whether there is."""
        found = self._store.image.topics.get(topic)
        if found is not None:
            return len(found.partitions)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
        answer = await self._calls.ask(request, MetadataResponse, caller, version=12)
        described = answer.topics[0]
        if described.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise Problem.of(described.error_code, _sentence(described.error_code, topic))
        created = self._store.image.topics.get(topic)
        count = len(described.partitions) if created is None else len(created.partitions)
        if not count:
            raise Problem.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic} is being created; try again.")
        return count

    def leader_of(self, topic: str, partition: int) -> int:
        """-1 if there is none."""
        found = self._store.image.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return -1
        return found.partitions[partition].leader

    async def coordinator_of(self, group: str, caller: HttpCaller) -> int:
        request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        answer = await self._calls.ask(request, FindCoordinatorResponse, caller)
        found = answer.coordinators[0]
        if found.error_code:
            raise Problem.of(found.error_code, found.error_message)
        return found.node_id


def _sentence(code: int, topic: str) -> str | None:
    return f"There is no topic {topic[:250]}." if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
