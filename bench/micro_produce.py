"""Microseconds of processor time per produce request inside the broker: `python bench/micro_produce.py`.

From frame to answer, with a real log on disk, without a socket. The best of several runs, since anything slower is the
machine's doing.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from tidemark.broker.config import TOPIC_KEYS, load_config
from tidemark.broker.metadata.topics import NewTopic
from tidemark.broker.node import Node
from tidemark.protocol.compression import LZ4, NONE, ZSTD
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemark.protocol.records import Record, build_batch
from tidemark.protocol.schema import codec

VERSION = 12
PARTITIONS = 16
ROUNDS = 15
MODE = "tidemark.produce.validation"


class Sink:
    """Stands for a connection."""

    peer = "here"
    listener = "PLAINTEXT"
    client_id: str | None = None
    client_id_field = b"?"

    def __init__(self) -> None:
        self.calls: dict[int, Any] = {}
        self.answered = 0

    def answer(self, _parts: Any) -> None:
        self.answered += 1

    answer_whole = answer

    def answer_deferred(self, deferred: Any) -> None:
        deferred.then(self.answer)

    def count_waiting(self, size_bytes: int) -> None: ...

    def release_waiting(self, size_bytes: int) -> None: ...


def frame(topic: str, batch: bytes, partitions: int) -> bytes:
    out = bytearray(struct.pack(">hhih", 0, VERSION, 1, 5) + b"bench" + b"\0")
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    codec(ProduceRequest, VERSION).encode(request, out)
    return bytes(out)


def batch_of(count: int, size: int, compression: int = NONE) -> bytes:
    words = [b"%08x" % (number * 2654435761 % 2**32) for number in range(size // 8 + count)]
    values = [b"".join(words[index : index + size // 8]) for index in range(count)]
    now = time.time_ns() // 1_000_000
    records = [Record(timestamp=now + index // 50, value=value) for index, value in enumerate(values)]
    return bytes(build_batch(records, compression=compression))


def cases() -> Iterator[tuple[str, bytes, int, int]]:
    """What it is called, its batch, to how many partitions, how often."""
    small = batch_of(1, 96)
    yield "1 record of 96 B: fast path", small, 1, 4000
    yield "1 record of 96 B to 2 partitions: general path", small, 2, 2000
    yield f"1 record of 96 B to {PARTITIONS} partitions: general path", small, PARTITIONS, 500
    for name, compression in (("uncompressed", NONE), ("lz4", LZ4), ("zstd", ZSTD)):
        yield f"100 records of 1 KB, {name}", batch_of(100, 1024, compression), 1, 200
    yield "1,000 records of 96 B", batch_of(1000, 96), 1, 100
    yield "8,000 records of 96 B: on a thread if strict", batch_of(8000, 96), 1, 10


async def measure(
    node: Any, topic: str, batch: bytes, partitions: int, count: int, sink: Sink | None = None, *, rounds: int = ROUNDS
) -> float:
    """Microseconds of all threads."""
    handle, sink = node._server._handle, sink or Sink()
    sent = frame(topic, batch, partitions)
    best = float("inf")
    for _ in range(rounds):
        frames = [bytearray(sent) for _ in range(count)]
        sink.answered = 0
        start = time.process_time()
        for each in frames:
            handle(sink, each)
        while sink.answered < count:
            await asyncio.sleep(0.001)
        best = min(best, time.process_time() - start)
        await asyncio.sleep(0)
    return best / count * 1e6


async def main(modes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = Node(load_config(overrides={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}))
        await node.start()
        for index, mode in enumerate(modes):
            configs = {MODE: mode} if MODE in TOPIC_KEYS else {}
            wish = NewTopic(
                name=mode, topic_id=bytes([index + 1] * 16), partitions=PARTITIONS, replication_factor=1,
                configs={**configs, "retention.bytes": "1000000"},
            )  # fmt: skip
            await node._creation.create([wish])
        print(f"{'µs per request':<52}" + "".join(f"{mode:>10}" for mode in modes))
        for name, batch, partitions, count in cases():
            figures = [await measure(node, mode, batch, partitions, count) for mode in modes]
            print(f"{name:<52}" + "".join(f"{figure:10.1f}" for figure in figures), flush=True)
        await node.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["relaxed", "strict"]))
