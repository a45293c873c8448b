"""Several brokers' replicas in one event loop: real logs and messages, a controller and links that a test rules."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.config import load_config
from tidemark.broker.core.deferred import awaited
from tidemark.broker.metadata.image import BROKER_RESOURCE, BrokerImage, Image, PartitionImage, TopicImage
from tidemark.broker.peers import PeerUnavailable
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replicas import Replicas
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from tidemark.protocol.messages.fetch import FetchRequest, FetchResponse
from tidemark.protocol.records import Record, build_batch, iter_batches, iter_records
from tidemark.protocol.schema import codec
from tidemark.storage import FileSlice, LogDirectory

TOPIC_ID = bytes(range(16))
OTHER_CODE = {"refuse": ErrorCode.INELIGIBLE_REPLICA, "stale": ErrorCode.INVALID_UPDATE_VERSION}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Link:
    """What a node sends another, through the bytes of its messages."""

    def __init__(self, cluster: Cluster, source: int, target: int | None) -> None:
        self.cluster = cluster
        self.source = source
        self.target = target

    async def send(self, request: Any, *, version: int, timeout: float, response: Any = None) -> Any:  # noqa: ASYNC109
        await asyncio.sleep(0)
        body = bytearray()
        codec(type(request), version).encode(request, body)
        request = codec(type(request), version).decode(memoryview(body))
        if self.target is None:
            return self.cluster.alter(request)
        self.cluster.check_link(self.source, self.target)
        assert isinstance(request, FetchRequest)
        answer = await awaited(self.cluster.nodes[self.target].follower_sessions.fetch(request))
        self.cluster.check_link(self.target, self.source)
        return through_bytes(answer, version)

    is_connected = True

    def begin(self, request: Any, *, version: int) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.send(request, version=version, timeout=10.0))

    def decoded(self, answer: Any, _response: type[Any], *, version: int) -> Any:
        return answer


def through_bytes(response: FetchResponse, version: int) -> FetchResponse:
    out = bytearray()
    parts = codec(FetchResponse, version).encode_parts(response, out)
    data = b"".join(
        os.pread(part.file.fileno(), part.length, part.position) if isinstance(part, FileSlice) else bytes(part)
        for part in parts
    )
    decoded: FetchResponse = codec(FetchResponse, version).decode(memoryview(data))
    return decoded


class Peers:
    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id

    def to_broker(self, node_id: int, *, purpose: str = "") -> Link:
        return Link(self.cluster, self.node_id, node_id)

    def to_controller(self) -> Link:
        return Link(self.cluster, self.node_id, None)


class Cluster:
    """Topics (`t` alone, usually) with one partition on all nodes; what changes is `t`."""

    def __init__(
        self, directory: Path, *, nodes: int = 3, topics: tuple[str, ...] = ("t",), log_dirs: int = 1, **settings: str
    ) -> None:
        self.log_dirs = log_dirs
        self.directory = directory
        self.settings = settings
        self.nodes: dict[int, Replicas] = {}
        self.directories: dict[int, LogDirectory] = {}
        self.cut: set[tuple[int, int]] = set()
        self.answer_alter: Callable[[AlterPartitionRequest], str] = lambda _: "agree"
        self.altered: list[frozenset[int]] = []
        ids = tuple(range(1, nodes + 1))
        self.image = Image(
            brokers={
                node: BrokerImage(broker_id=node, broker_epoch=100 + node, rack=None, endpoints={}) for node in ids
            }
        )
        self.partition = PartitionImage(replicas=ids, isr=ids, leader=1, leader_epoch=0, partition_epoch=0)
        self.topic_ids = {name: TOPIC_ID[:-1] + bytes((15 + number,)) for number, name in enumerate(topics)}
        self.image = replace(
            self.image,
            topics={name: self._topic(name) for name in topics},
            topic_names={topic_id: name for name, topic_id in self.topic_ids.items()},
        )

    def _topic(self, name: str) -> TopicImage:
        return TopicImage(name=name, topic_id=self.topic_ids[name], partitions=(self.partition,))

    def drop(self, name: str) -> None:
        """Delete a topic, which every node hears of at once."""
        topics = {each: topic for each, topic in self.image.topics.items() if each != name}
        names = {topic_id: each for topic_id, each in self.image.topic_names.items() if each != name}
        self.image = replace(self.image, topics=topics, topic_names=names)
        for replicas in self.nodes.values():
            self.tell(replicas)

    def make_again(self, name: str) -> None:
        """A new topic with a name that a deleted one had, and an id of its own."""
        topic_id = self.topic_ids[name] = self.topic_ids[name][::-1]
        topics = {**self.image.topics, name: self._topic(name)}
        self.image = replace(self.image, topics=topics, topic_names={**self.image.topic_names, topic_id: name})
        for replicas in self.nodes.values():
            self.tell(replicas)

    def start(self, node_id: int) -> None:
        path = self.directory / str(node_id)
        flags = {"node.id": str(node_id), "log.dirs": str(path), "replica.fetch.wait.max.ms": "100", **self.settings}
        config = load_config(overrides=flags)
        directory = self.directories[node_id] = LogDirectory.open(str(path), now_ms=now_ms)
        more = [LogDirectory.open(f"{path}-{number}", now_ms=now_ms) for number in range(2, self.log_dirs + 1)]
        replicas = self.nodes[node_id] = Replicas(
            node_id=node_id, config=config, directories=[directory, *more], now_ms=now_ms
        )
        replicas.start_replication(Peers(self, node_id))  # type: ignore[arg-type]
        replicas.table.lease_until = float("inf")
        replicas.roles.follow(Image(), self.image)

    async def stop(self, node_id: int, *, clean: bool = True) -> None:
        replicas = self.nodes.pop(node_id)
        replicas.table.stop_appending()
        await replicas.stop_replication()
        replicas.end_waits()
        if clean:
            replicas.close()
        else:
            replicas._threads.shutdown()
            for directory in replicas.table.directories:
                directory.close(clean=False)

    def check_link(self, source: int, target: int) -> None:
        if (source, target) in self.cut or target not in self.nodes or source not in self.nodes:
            raise PeerUnavailable(f"{source} cannot reach {target}")

    # -- the controller ----------------------------------------------------

    def become(self, *, except_for: tuple[int, ...] = (), **changes: Any) -> None:
        """A new state of the partition, which every node hears of at once (but for some)."""
        if "leader" in changes:
            changes.setdefault("leader_epoch", self.partition.leader_epoch + 1)
        self.partition = self.partition._replace(partition_epoch=self.partition.partition_epoch + 1, **changes)
        self.image = replace(self.image, topics={**self.image.topics, "t": self._topic("t")})
        for node_id, replicas in self.nodes.items():
            if node_id not in except_for:
                self.tell(replicas)

    def configure(self, configs: Mapping[tuple[int, str], Mapping[str, str]]) -> None:
        """Settings of topics and brokers, as the metadata has them."""
        self.image = replace(self.image, configs=configs)
        for node_id, replicas in self.nodes.items():
            self.tell(replicas)
            own = self.image.config_of(BROKER_RESOURCE, str(node_id))
            replicas.roles.reconfigure_all(replicas.table.config.with_values(own), self.image)

    def tell(self, replicas: Replicas) -> None:
        replicas.roles.follow(replicas.table.image, self.image)

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        what = self.answer_alter(request)
        if what == "unreachable":
            raise PeerUnavailable("no controller")
        asked = request.topics[0].partitions[0]
        result = PartitionResult(partition_index=0, leader_id=self.partition.leader)
        if what in OTHER_CODE:
            result.error_code = OTHER_CODE[what]
        elif asked.leader_epoch != self.partition.leader_epoch:
            result.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != self.partition.partition_epoch:
            result.error_code = ErrorCode.INVALID_UPDATE_VERSION
        else:
            isr = tuple(each.broker_id for each in asked.new_isr_with_epochs)
            self.altered.append(frozenset(isr))
            elected = {} if self.partition.leader in isr else {"leader": isr[0]}
            self.become(isr=isr, except_for=tuple(self.nodes) if what in ("lose", "early") else (), **elected)
        if what == "lose":
            raise PeerUnavailable("the answer is lost")
        result.leader_epoch = self.partition.leader_epoch
        result.partition_epoch = self.partition.partition_epoch
        result.isr = list(self.partition.isr)
        return AlterPartitionResponse(topics=[TopicResult(topic_id=TOPIC_ID, partitions=[result])])

    # -- what tests do -----------------------------------------------------

    def led(self, node_id: int, topic: str = "t") -> Partition:
        return self.nodes[node_id].table.topics[topic].partitions[0]

    def replica(self, node_id: int) -> Any:
        found = self.nodes[node_id].table.topics["t"].replica(0)
        assert found is not None
        return found

    def append(self, node_id: int, *values: bytes, topic: str = "t") -> int:
        """Returns the last offset."""
        batch = build_batch([Record(value=value) for value in values])
        return self.led(node_id, topic).append(memoryview(batch), now_ms()).last_offset

    async def acknowledged(self, node_id: int, last_offset: int, *, topic: str = "t") -> Exception | None:
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.led(node_id, topic).await_high_watermark(last_offset, future.set_result)
        return await asyncio.wait_for(future, 10)

    def values(self, node_id: int) -> list[bytes | None]:
        replica_log = self.replica(node_id).log
        found: list[bytes | None] = []
        if self.replica(node_id).is_truncating:
            return found  # another thread is at work on it
        offset = replica_log.start_offset
        while slices := replica_log.read(offset=offset, limit_bytes=1 << 20):
            for each in slices:
                data = os.pread(each.file.fileno(), each.length, each.position)
                for header, batch in iter_batches(data):
                    found.extend(record.value for record in iter_records(batch))
                    offset = header.next_offset
        return found

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)


@pytest.fixture
async def new_cluster(tmp_path: Path) -> AsyncIterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(**settings: Any) -> Cluster:
        cluster = Cluster(tmp_path, **settings)
        made.append(cluster)
        for node_id in cluster.partition.replicas:
            cluster.start(node_id)
        return cluster

    yield make
    for cluster in made:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
