from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.consumer.heartbeat import consumer_heartbeat
from tidemark.broker.groups.group import Caller
from tidemark.broker.groups.records import decode, encode_key, encode_value
from tidemark.broker.groups.shard import GroupShard
from tidemark.broker.metadata.image import Image, PartitionImage, TopicImage
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

ONE = PartitionImage(replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0)


class Coordinator:
    """One shard with a log in memory, a clock that stands still, and topics t (4 partitions) and u (2)."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []
        self.disk_is_full = False
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.may_describe: Callable[[str], bool] | None = None
        self.shard = GroupShard(config=BrokerConfig(**settings), random=Random(0))
        self.set_topics(t=4, u=2)

    def set_topics(self, **sizes: int) -> None:
        topics = {
            name: TopicImage(name=name, topic_id=self.id_of(name), partitions=(ONE,) * count)
            for name, count in sizes.items()
        }
        names = {topic.topic_id: name for name, topic in topics.items()}
        self.shard.image = Image(topics=topics, topic_names=names, configs=self.configs)

    @staticmethod
    def id_of(name: str) -> bytes:
        return name.encode().ljust(16, b"\0")

    @property
    def group(self) -> Any:
        return self.shard.groups.get("g")

    def finish(self, result: Any) -> Any:
        if not isinstance(result, CoordinatorResult):
            return result
        if self.disk_is_full:
            return result.refuse(ErrorCode.NOT_COORDINATOR)
        written = [(encode_key(record.key), encode_value(record.value, record.version)) for record in result.records]
        self.log += [decode(key, value) for key, value in written]
        return self.shard.apply(result)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for result in self.shard.wake(self.now_ms):
            self.finish(result)

    def beat(self, member_id: str, epoch: int, *, version: int = 1, client: str = "c", **fields: Any) -> Any:
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=self.id_of(name), partitions=list(numbers)) for name, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        caller = Caller(client, "/h", version, self.may_describe)
        return self.finish(consumer_heartbeat(self.shard, request, caller, self.now_ms))

    def join(self, member_id: str, *topics: str, **fields: Any) -> Any:
        given = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(topics or ("t",)), "owned": {}}
        return self.beat(member_id, 0, **{**given, **fields})

    def share(self, answer: Any) -> dict[str, list[int]] | None:
        if answer.assignment is None:
            return None
        names = {self.id_of(name): name for name in ("t", "u", "v")}
        return {names[each.topic_id]: each.partitions for each in answer.assignment.topic_partitions}

    def replayed(self) -> GroupShard:
        shard = GroupShard(config=self.shard.config, image=self.shard.image, random=Random(0))
        for record in self.log:
            shard.replay(record)
        return shard


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def new_coordinator() -> type[Coordinator]:
    return Coordinator
