"""A flood: many connections that send as much as is taken, and throw every answer away. `python flood.py SECONDS …`"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import time
from collections.abc import Sequence

from tidemark.protocol.messages.metadata import MetadataRequest
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemark.protocol.records import Record, build_batch
from tidemark.protocol.schema import api, codec

TOGETHER = 64 << 10  # bytes of requests that a connection has ready


def frame(request: object, version: int) -> bytes:
    declared = api(type(request))
    out = bytearray(struct.pack(">hhih", declared.key, version, 1, 5) + b"flood")
    if version in declared.flexible:
        out.append(0)
    codec(type(request), version).encode(request, out)
    return struct.pack(">i", len(out)) + out


def requests(topic: str, partitions: int) -> list[bytes]:
    """Cheap ones by the hundred, and ones that ask for everything."""
    batch = build_batch([Record(value=bytes(100))])
    small = []
    for index in range(partitions):
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])]
        small.append(frame(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=data), 9))
    everything = frame(MetadataRequest(topics=None), 9)
    return [
        b"".join(small) * (TOGETHER // sum(map(len, small)) + 1),
        everything * (TOGETHER // len(everything)),
        small[0] * (TOGETHER // len(small[0])),
    ]


class Flooder:
    def __init__(self, address: tuple[str, int], payload: bytes) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setblocking(False)
        self._payload = payload
        self._at = 0

    def go_on(self, events: int, scratch: memoryview) -> int:
        """Returns how many bytes of answers came."""
        came = 0
        if events & selectors.EVENT_READ:
            came = self.socket.recv_into(scratch)
            if not came:
                raise ConnectionError("hung up on")
        if events & selectors.EVENT_WRITE:
            self._at += self.socket.send(memoryview(self._payload)[self._at :])
            self._at %= len(self._payload)
        return came


def flood(
    addresses: Sequence[tuple[str, int]], *, connections: int, seconds: float, topic: str, partitions: int
) -> int:
    payloads = requests(topic, partitions)
    selector = selectors.DefaultSelector()
    for number in range(connections):
        flooder = Flooder(addresses[number % len(addresses)], payloads[number // len(addresses) % len(payloads)])
        selector.register(flooder.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, flooder)
    scratch, answered, deadline = memoryview(bytearray(1 << 18)), 0, time.monotonic() + seconds
    print("flooding", flush=True)
    while time.monotonic() < deadline:
        for key, events in selector.select(0.1):
            try:
                answered += key.data.go_on(events, scratch)
            except BlockingIOError:
                continue
            except OSError as error:
                sys.exit(f"a connection was lost: {error}")
    return answered


if __name__ == "__main__":
    seconds, connections, topic, partitions, *ports = sys.argv[1:]
    print(
        flood(
            [("127.0.0.1", int(port)) for port in ports],
            connections=int(connections),
            seconds=float(seconds),
            topic=topic,
            partitions=int(partitions),
        )
    )
