"""The quick way and the general one give the same answers, byte for byte, and leave the same logs."""

from __future__ import annotations

import asyncio
import inspect
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemark.broker.core import registry
from tidemark.broker.core.errors import CloseConnection
from tidemark.broker.handlers.produce.fast_path import recognise
from tidemark.broker.metadata.topics import NewTopic
from tidemark.broker.node import Node
from tidemark.broker.replication.writers import Writers
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemark.protocol.records import Record, build_batch
from tidemark.protocol.schema import codec

IDS = {"plain": b"\1" * 16, "synced": b"\2" * 16, "stamped": b"\3" * 16, "an-" * 40 + "end": b"\4" * 16}


class Recorder:
    """Stands for a connection: keeps the answers."""

    peer = "a test"
    client_id: str | None = None
    client_id_field = b"?"

    def __init__(self) -> None:
        self.calls: dict[int, Any] = {}
        self.answers: list[Any] = []
        self.waiting: asyncio.Future[Any] | None = None

    def answer(self, parts: Any) -> None:
        self.answers.append(None if parts is None else b"".join(parts))

    def answer_whole(self, answer: bytearray) -> None:
        self.answers.append(bytes(answer))

    def answer_deferred(self, deferred: Any) -> None:
        self.waiting = asyncio.get_running_loop().create_future()
        deferred.then(lambda parts: self.waiting.set_result(parts))


async def open_topics(node: Node) -> None:
    configs = {"synced": {"flush.messages": "1"}, "stamped": {"message.timestamp.type": "LogAppendTime"}}
    new_topics = [
        NewTopic(name=name, topic_id=topic_id, partitions=3, replication_factor=1, configs=configs.get(name, {}))
        for name, topic_id in IDS.items()
    ]
    refused, _ = await node._creation.create(new_topics)
    assert not refused


def request(random: Random) -> tuple[int, ProduceRequest]:
    topics = [topic(random) for _ in range(random.choice((1, 1, 1, 1, 1, 1, 0, 2)))]
    return random.choice((*range(3, 14), *[*range(9, 14)] * 4)), ProduceRequest(
        transactional_id=random.choice((None,) * 20 + ("t",)),
        acks=random.choice((-1, -1, -1, -1, 1, 1, 1, 1, 0, 0, 2, -2)),
        timeout_ms=30_000,
        topic_data=topics,
    )


def topic(random: Random) -> TopicProduceData:
    name = random.choice([*[*IDS] * 8, "unknown", "", "__consumer_offsets"])
    partitions = [
        PartitionProduceData(index=random.choice((0, 1, 2, 0, 1, 2, 3, -1)), records=records(random))
        for _ in range(random.choice((1, 1, 1, 1, 1, 1, 0, 2)))
    ]
    return TopicProduceData(name=name, topic_id=IDS.get(name, bytes(16)), partition_data=partitions)


def records(random: Random) -> bytes | None:
    if random.random() < 0.1:
        return random.choice((None, b"", b"x", bytes(61)))
    size = random.choice((0, 1, 10, 50, 70, 200, 20_000))
    producer = random.choice((-1, -1, 5))
    batch = build_batch(
        [Record(value=random.randbytes(size)) for _ in range(random.choice((1, 1, 3)))],
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=random.choice((0, 1, 2, 3)) if producer >= 0 else -1,
        base_offset=random.choice((0,) * 20 + (7,)),
    )
    if random.random() < 0.1:
        batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
    return bytes(batch)


def frame(random: Random, correlation_id: int, version: int, message: ProduceRequest) -> bytearray:
    out = bytearray(struct.pack(">hhih", 0, version, correlation_id, 4) + b"test")
    if version >= 9:
        out.append(0)
    codec(ProduceRequest, version).encode(message, out)
    fate = random.random()
    if fate < 0.03:
        del out[random.randrange(12, len(out)) :]
    elif fate < 0.06:
        out += random.randbytes(random.randint(1, 3))
    elif fate < 0.12:
        out[random.randrange(13, min(len(out), 60))] ^= 1 << random.randrange(8)
    return out


@pytest.mark.parametrize("seed", range(4))
async def test_it_answers_as_the_general_way_does(
    start_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    general = registry.find_route(0)
    assert general is not None
    assert general.quick is not None
    nodes = [await start_node(tmp_path / name) for name in ("quick", "general")]
    connections = [Recorder(), Recorder()]
    monkeypatch.setattr(Writers, "note", lambda *_, **__: None)  # a busy machine makes writes slow
    for node in nodes:
        node._replicas.table.now_ms = lambda: 1_700_000_000_000
        await open_topics(node)
    quick_answers = 0

    def counted(*arguments: Any, **services: Any) -> Any:
        nonlocal quick_answers
        answer = general.quick(*arguments, **services)  # type: ignore[misc]
        quick_answers += answer is not None
        return answer

    counted.__signature__ = inspect.signature(general.quick)  # type: ignore[attr-defined]
    random = Random(seed)
    for correlation_id in range(1500):
        data = frame(random, correlation_id, *request(random))
        for node, connection, quick in zip(nodes, connections, (counted, None), strict=True):
            monkeypatch.setitem(registry._routes, 0, general._replace(quick=quick))
            try:
                node._server._handle(connection, bytearray(data))
            except CloseConnection as error:
                connection.answers.append(str(error))
            if connection.waiting is not None:
                connection.answer(await connection.waiting)
                connection.waiting = None
    for node in nodes:
        await node.stop()
    assert connections[0].answers == connections[1].answers
    assert quick_answers > 200
    for name in IDS:
        for index in range(3):
            logs = [
                b"".join(path.read_bytes() for path in sorted((tmp_path / way / f"{name}-{index}").glob("*.log")))
                for way in ("quick", "general")
            ]
            assert logs[0] == logs[1]
            assert index or logs[0]


def test_only_the_most_common_form_is_recognised() -> None:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"x")])
    plain = {"acks": -1, "timeout_ms": 1, "topic_data": [data]}

    def recognised(version: int, **changes: Any) -> bool:
        out = bytearray()
        codec(ProduceRequest, version).encode(ProduceRequest(**(plain | changes)), out)  # type: ignore[arg-type]
        return recognise(out, 0, version) is not None

    assert all(recognised(version) for version in range(9, 14))
    assert not recognised(8)
    assert not recognised(12, transactional_id="t")
    assert not recognised(12, acks=2)
    assert not recognised(12, topic_data=[])
    assert not recognised(12, topic_data=[data, data])
    assert not recognised(12, topic_data=[TopicProduceData(name="t", partition_data=[])])
