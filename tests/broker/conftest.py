"""A node in the test's own event loop, and a client that speaks our codecs over a real socket.

`support/` holds clients that several folders of tests use; this makes them importable.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.ports import free_port

from tidemark.broker.config import load_config
from tidemark.broker.core.garbage import collect_rarely
from tidemark.broker.node import Node
from tidemark.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidemark.protocol.records import Record, build_batch
from tidemark.protocol.schema import api, codec

sys.path.append(str(Path(__file__).parent / "support"))


class Client:
    """One connection. `send` and `receive` can be used apart, to pipeline."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.correlation_id = 0

    def send(self, request: Any, version: int) -> int:
        self.correlation_id += 1
        declared = api(type(request))
        out = bytearray(struct.pack(">hhih", declared.key, version, self.correlation_id, 4) + b"test")
        if version in declared.flexible:
            out.append(0)
        codec(type(request), version).encode(request, out)
        self.writer.write(struct.pack(">i", len(out)) + out)
        return self.correlation_id

    async def receive(self, response: type[Any], version: int) -> Any:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        self.answered = struct.unpack_from(">i", frame)[0]
        tagged = version in api(response).flexible and api(response).key != 18
        return codec(response, version).decode(memoryview(frame), 5 if tagged else 4)

    async def call(self, request: Any, response: type[Any], version: int) -> Any:
        sent = self.send(request, version)
        answer = await asyncio.wait_for(self.receive(response, version), 10)
        assert self.answered == sent
        return answer

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """The answer to a request, in the newest version unless another is named."""
        asked = type(request)
        response = getattr(sys.modules[asked.__module__], asked.__name__.removesuffix("Request") + "Response")
        return await self.call(request, response, api(asked).versions.last if version is None else version)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        answer = await self.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    async def topic_id(self, name: str) -> bytes:
        answer = await self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
        return bytes(answer.topics[0].topic_id)

    async def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = -1, batch: Any = None) -> Any:
        answer = await self.call(
            produce_request(topic, *values, partition=partition, acks=acks, batch=batch), ProduceResponse, 12
        )
        return answer.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, *, wait_ms: int = 0, min_bytes: int = 1) -> Any:
        answer = await self.call(fetch_request(topic, offset, wait_ms=wait_ms, min_bytes=min_bytes), FetchResponse, 12)
        return answer.responses[0].partitions[0]

    async def closed_by_peer(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(), 10) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def produce_request(
    topic: str, *values: bytes, partition: int = 0, acks: int = -1, batch: Any = None
) -> ProduceRequest:
    records = batch if batch is not None else build_batch([Record(value=value) for value in values])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])


def fetch_request(topic: str, offset: int, *, wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=min_bytes, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


SECONDS_MAX = 20  # for a node of several to start, to stop, or to see what must come
Start = Callable[..., Awaitable[Node]]
Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def start_node(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts nodes on the test's directory; what still runs at the end is stopped."""
    nodes: list[Node] = []

    async def start(directory: Path = tmp_path / "data", **settings: Any) -> Node:
        overrides = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
        node = Node(
            load_config(overrides=overrides | {key.replace("_", "."): value for key, value in settings.items()})
        )
        await node.start()
        nodes.append(node)
        return node

    yield start
    for node in nodes:
        await node.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Client] = []

    async def open_client(node: Node, address: tuple[str, int] | None = None) -> Client:
        client = Client(*await asyncio.open_connection(*(address or node.address)))
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        await client.close()


@pytest.fixture
async def guarded(start_node: Start) -> AsyncIterator[Any]:
    """A broker with an authorizer: `guarded_broker`."""
    from guarded_broker import GuardedBroker

    broker = GuardedBroker(start_node, Client, offsets_topic_num_partitions=2, transaction_state_log_num_partitions=2)
    await broker.start()
    yield broker
    await broker.close()


@pytest.fixture
def client_class() -> type[Client]:
    return Client


@pytest.fixture
def requests() -> Any:
    """The request builders, for tests that send and receive apart."""

    class Requests:
        produce = staticmethod(produce_request)
        fetch = staticmethod(fetch_request)

    return Requests


class Nodes:
    """A cluster in the test's own event loop: nodes 1 to `voters`, and more that may join."""

    def __init__(self, path: Path, *, voters: int, extra: int = 0) -> None:
        self.path = path
        self.ids = list(range(1, voters + extra + 1))
        ports = [free_port() for _ in range(2 * len(self.ids))]
        self.ports = dict(zip(self.ids, ports, strict=False))
        self.own_ports = dict(zip(self.ids, ports[len(self.ids) :], strict=True))
        self.voters = self.ids[:voters]
        self.running: dict[int, Node] = {}

    async def start(self, *ids: int, **settings: Any) -> None:
        await asyncio.gather(*(self._start(node_id, settings) for node_id in ids or self.voters))

    async def _start(self, node_id: int, settings: dict[str, Any]) -> None:
        config = load_config(
            None,
            {
                "node.id": node_id,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node_id]},CONTROLLER://127.0.0.1:{self.own_ports[node_id]}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": ",".join(
                    f"{each}@127.0.0.1:{self.own_ports[each]}" for each in self.voters
                ),
                "log.dirs": self.path / str(node_id),
                "offsets.topic.num.partitions": 2,
                "broker.heartbeat.interval.ms": 100,
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
        )
        node = self.running[node_id] = Node(config)
        await asyncio.wait_for(node.start(), SECONDS_MAX)

    async def stop(self, node_id: int) -> None:
        await asyncio.wait_for(self.running.pop(node_id).stop(), SECONDS_MAX)

    def image(self, node_id: int) -> Any:
        return self.running[node_id]._store.image

    @property
    def controller(self) -> int:
        return next(node_id for node_id, node in self.running.items() if node._store.is_controller)

    @property
    def another(self) -> int:
        """A node that is not the controller."""
        return next(node_id for node_id in self.running if node_id != self.controller)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                with contextlib.suppress(StopIteration):
                    if condition():
                        return
                await asyncio.sleep(0.01)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(tmp_path, voters=3, extra=1)
    try:
        yield nodes
    finally:
        await asyncio.gather(*(nodes.stop(node_id) for node_id in list(nodes.running)))


@pytest.fixture
async def ask(nodes: Nodes, connect: Any) -> Callable[..., Any]:
    async def ask(node_id: int, request: Any, response: type[Any], version: int) -> Any:
        client = await connect(nodes.running[node_id])
        return await client.call(request, response, version)

    return ask


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """As a broker's process does it: the collector does not look through what was there before."""
    before = gc.get_threshold()
    collect_rarely()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
