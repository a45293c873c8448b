"""Who leads a partition or coordinates a group, by the metadata that this node has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.problems import Problem
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

METADATA_VERSION: Final = 12
May = Callable[[HttpCaller, str], bool]


def _everybody(_caller: HttpCaller, _topic: str) -> bool:
    return True


class Leaders:
    def __init__(
        self, store: MetadataStore, calls: Calls, *, may_describe: May = _everybody, may_read: May = _everybody
    ) -> None:
        """`may_describe`: whether a caller may know of a topic; `may_read`: and have its records."""
        self._store = store
        self._calls = calls
        self._may_describe = may_describe
        self.may_read = may_read

    async def partition_count(self, topic: str, caller: HttpCaller, *, create: bool = False) -> int:
        """Raises Problem if there is no such topic, or the caller may not know whether there is."""
        found = self._store.image.topics.get(topic)
        if found is not None and self._may_describe(caller, topic):
            return len(found.partitions)
        described_count = await self._described(topic, caller, create=create)
        created = self._store.image.topics.get(topic)
        count = described_count if created is None else len(created.partitions)
        if not count:
            raise Problem.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic} is being created; try again.")
        return count

    def known_count(self, topic: str) -> int:
        """Of a topic's partitions, as far as this node knows; 0: there is no such topic."""
        found = self._store.image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    async def _described(self, topic: str, caller: HttpCaller, *, create: bool = False) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
        answer = await self._calls.ask(request, MetadataResponse, caller, version=METADATA_VERSION)
        described = answer.topics[0]
        if described.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise Problem.of(described.error_code, _sentence(described.error_code, topic))
        return len(described.partitions)

    async def refuse_partition(self, topic: str, partition: int, caller: HttpCaller) -> NoReturn:
        """There is no such partition; but that is only for those who may know of the topic. Raises Problem."""
        await self._described(topic, caller)
        raise Problem.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic[:250]}-{partition}.")

    def leader_of(self, topic: str, partition: int) -> int:
        """-1 if there is none."""
        found = self._store.image.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return -1
        return found.partitions[partition].leader

    def refusal_by_leader(self, topic: str, partition: int, code: int, message: str | None = None) -> Problem:
        """A leader that does not know what the metadata here says it leads has not caught up yet, or this node has not:
        that passes, and is not told as if there were no such topic."""
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self.leader_of(topic, partition) >= 0:
            told = f"The leader of {topic[:250]}-{partition} does not know it yet, or no more; try again."
            return Problem.of(ErrorCode.LEADER_NOT_AVAILABLE, told)
        return Problem.of(code, message)

    async def coordinator_of(self, group: str, caller: HttpCaller) -> int:
        request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        answer = await self._calls.ask(request, FindCoordinatorResponse, caller)
        found = answer.coordinators[0]
        if found.error_code:
            raise Problem.of(found.error_code, found.error_message)
        return found.node_id


def _sentence(code: int, topic: str) -> str | None:
    return f"There is no topic {topic[:250]}." if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
