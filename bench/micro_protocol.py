"""Microseconds per operation of the protocol package: `python bench/micro_protocol.py`.

Prints the best of several runs, since anything slower is the machine's doing.
"""

from __future__ import annotations

import subprocess
import sys
import timeit
from collections.abc import Callable
from typing import Any

from tidemark.protocol.apis import first_flexible
from tidemark.protocol.headers import (
    RequestHeader,
    put_response_start,
    read_request_header,
    request_frame,
    response_room,
)
from tidemark.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidemark.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidemark.protocol.records import Record, build_batch, check_batch, place_batch, read_header
from tidemark.protocol.schema import codec

TOPIC_ID = bytes(range(16))


class FileRange:
    __slots__ = ("length",)

    def __init__(self, length: int) -> None:
        self.length = length


def report(label: str, operation: Callable[[], Any], *, number: int = 20_000) -> None:
    best = min(timeit.repeat(operation, number=number, repeat=7)) / number
    print(f"{label:<48} {best * 1e6:7.2f} µs")


def encoded(message: Any, version: int) -> memoryview:
    out = bytearray()
    codec(type(message), version).encode(message, out)
    return memoryview(out)


def produce_request(partitions: int, batch: bytearray) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topic = TopicProduceData(name="events", topic_id=TOPIC_ID, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response(partitions: int) -> ProduceResponse:
    results = [PartitionProduceResponse(index=index, base_offset=7, log_start_offset=0) for index in range(partitions)]
    return ProduceResponse(
        responses=[TopicProduceResponse(name="events", topic_id=TOPIC_ID, partition_responses=results)]
    )


def produce(batch: bytearray) -> None:
    for version in (3, 9, 13):
        for partitions in (1, 15):
            frame = encoded(produce_request(partitions, batch), version)
            decode, encode = codec(ProduceRequest, version).decode, codec(ProduceResponse, version).encode
            response = produce_response(partitions)
            title = f"Produce v{version}, {partitions} partitions: "
            report(title + "decode request", lambda decode=decode, frame=frame: decode(frame))
            report(title + "encode response", lambda encode=encode, response=response: encode(response, bytearray()))
            report(title + "build response", lambda count=partitions: produce_response(count))


def fetch() -> None:
    wanted = FetchPartition(partition=0, fetch_offset=10, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="events", topic_id=TOPIC_ID, partitions=[wanted])]
    )
    found = PartitionData(partition_index=0, high_watermark=9, records=[FileRange(1 << 20)])
    response = FetchResponse(responses=[FetchableTopicResponse(topic="events", topic_id=TOPIC_ID, partitions=[found])])
    for version in (11, 12, 17, 18):
        frame = encoded(request, version)
        decode, encode = codec(FetchRequest, version).decode, codec(FetchResponse, version).encode_parts
        report(f"Fetch v{version}: decode request", lambda decode=decode, frame=frame: decode(frame))
        report(f"Fetch v{version}: encode response in parts", lambda encode=encode: encode(response, bytearray()))


def headers() -> None:
    header = RequestHeader(0, 9, 1, "rdkafka")
    frame, flexible = memoryview(request_frame(header, b"", flexible=True))[4:], first_flexible()
    report("request header: read", lambda: read_request_header(frame, first_flexible=flexible))
    report("request frame: write", lambda: request_frame(header, b"", flexible=True))
    room = response_room(ProduceResponse, 9)
    report("response header: write", lambda: put_response_start(bytearray(room), 0, 5, 1))


def batches(batch: bytearray) -> None:
    view = memoryview(batch)
    report("batch header: read", lambda: read_header(view))
    report(f"batch of {len(batch)} bytes: check", lambda: check_batch(view))
    large = memoryview(build_batch([Record(timestamp=1, value=bytes(1000))] * 1000))
    report(f"batch of {len(large)} bytes: check", lambda: check_batch(large), number=500)
    report("batch: place", lambda: place_batch(view, base_offset=1, leader_epoch=2))


def imports() -> None:
    """In a process of its own, since here everything is imported already."""
    script = (
        "import typing, re, struct, time; start = time.perf_counter()\n"
        "from tidemark.protocol.apis import apis\n"
        "for entry in apis().values(): entry.request\n"
        "print(time.perf_counter() - start)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True) for _ in range(5)
    ]
    print(f"{'import of all messages':<48} {min(float(run.stdout) for run in runs) * 1e3:7.2f} ms")


def main() -> None:
    batch = build_batch([Record(timestamp=1, value=bytes(100))])
    headers()
    batches(batch)
    produce(batch)
    fetch()
    imports()


if __name__ == "__main__":
    main()
