"""Members of groups, by hand: each method is one request."""

from __future__ import annotations

from typing import Any

from tidemark.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


class Groups:
    """`topic` and `group` are those of requests that name no other."""

    def __init__(self, client: Any, *, topic: str, group: str) -> None:
        self.client = client
        self.topic = topic
        self.group = group

    async def prepare(self) -> None:
        answer = await self.client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]))
        assert answer.coordinators[0].error_code == 0

    @property
    def subscription(self) -> bytes:
        """What consumers send as metadata: version 0, the topics, no user data."""
        topic = self.topic.encode()
        return b"\0\0" + b"\0\0\0\x01" + len(topic).to_bytes(2, "big") + topic + b"\xff\xff\xff\xff"

    # -- the classic protocol ----------------------------------------------

    def join_request(self, member_id: str = "", **fields: Any) -> JoinGroupRequest:
        known: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=self.subscription)],
        }
        return JoinGroupRequest(**known | fields)

    async def join(self, member_id: str = "", *, version: int = 9, **fields: Any) -> Any:
        return await self.client.ask(self.join_request(member_id, **fields), version)

    async def new_member_id(self, **fields: Any) -> str:
        return str((await self.join(**fields)).member_id)

    async def sync(self, member_id: str, generation: int, *, version: int = 5, **fields: Any) -> Any:
        known: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        return await self.client.ask(SyncGroupRequest(**known | fields), version)

    async def stable(self, *, assignment: bytes = b"all", **fields: Any) -> tuple[str, int]:
        """A group of one member that has its assignment: the member's id, and the generation."""
        is_static = "group_instance_id" in fields  # and so it needs no second request to join
        member_id = "" if is_static else await self.new_member_id(**fields)
        joined = await self.join(member_id, **fields)
        assert joined.error_code == 0
        given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)]
        synced = await self.sync(
            joined.member_id,
            joined.generation_id,
            group_id=fields.get("group_id", self.group),
            protocol_type=fields.get("protocol_type", "consumer"),
            assignments=given,
            group_instance_id=fields.get("group_instance_id"),
        )
        assert synced.error_code == 0
        return joined.member_id, joined.generation_id

    # -- KIP-848 -----------------------------------------------------------

    async def consumer(self, member_id: str = "m", epoch: int = 0, *, version: int = 1, **fields: Any) -> Any:
        known: dict[str, Any] = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch}
        if epoch == 0:
            known |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        return await self.client.ask(ConsumerGroupHeartbeatRequest(**known | fields), version)

    # -- offsets -----------------------------------------------------------

    async def commit(self, offset: int, *, partition: int = 0, **fields: Any) -> int:
        """The code of a commit for the topic, by default as a client that is no member."""
        where = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name=self.topic, partitions=[where])]
        answer = await self.client.ask(OffsetCommitRequest(**{"group_id": self.group} | fields, topics=topics), 9)
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, *, partition: int = 0) -> int:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[partition])]
        asked = OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        answer = await self.client.ask(OffsetFetchRequest(groups=[asked]), 9)
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)
