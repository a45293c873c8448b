"""Messages that are written and read in slices: the same bytes and the same messages, with turns for others between."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemark.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidemark.protocol.messages.produce import ProduceRequest
from tidemark.protocol.schema import DecodeError, EncodeError, codec

MANY = 1000
MESSAGES: dict[str, tuple[Any, int]] = {
    "old": (MetadataRequest(topics=[MetadataRequestTopic(name=f"t{index}") for index in range(MANY)]), 1),
    "flexible": (MetadataRequest(topics=[MetadataRequestTopic(name=f"t{index}") for index in range(MANY)]), 12),
    "nested": (
        CreateTopicsRequest(topics=[CreatableTopic(name=f"t{index}", num_partitions=1) for index in range(MANY)]),
        7,
    ),
    "without an element": (MetadataResponse(), 12),
    "without an array": (ProduceRequest(), 12),
}


def driven(job: Generator[None, None, Any]) -> tuple[Any, int]:
    """What it returns, and how often it yielded."""
    turns = 0
    while True:
        try:
            next(job)
        except StopIteration as stop:
            return stop.value, turns
        turns += 1


@pytest.mark.parametrize("name", MESSAGES)
def test_slices_make_the_same_message(name: str) -> None:
    message, version = MESSAGES[name]
    made = codec(type(message), version)
    whole, out = bytearray(), bytearray()
    made.encode(message, whole)
    _, encode_turns = driven(made.encode_slices(message, out))
    assert out == whole
    read, decode_turns = driven(made.decode_slices(memoryview(out)))
    assert read == message
    many = name in ("old", "flexible", "nested")
    assert (encode_turns > 10, decode_turns > 10) == (many, many)


@pytest.mark.parametrize("version", [4, 12, 18])
def test_parts_are_the_same_in_slices(version: int) -> None:
    partitions = [PartitionData(partition_index=index, records=b"x" * index) for index in range(100)]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts, turns = driven(codec(FetchResponse, version).encode_parts_slices(answer, bytearray()))
    assert parts == codec(FetchResponse, version).encode_parts(answer, bytearray())
    assert turns > 1


def test_what_is_wrong_is_told_in_slices_as_well() -> None:
    body = (1_000_001).to_bytes(4, "big") + bytes(2 * 1_000_001)
    with pytest.raises(DecodeError, match="elements"):
        driven(codec(MetadataRequest, 1).decode_slices(memoryview(body)))
    with pytest.raises(EncodeError, match="name"):
        driven(
            codec(MetadataRequest, 1).encode_slices(
                MetadataRequest(topics=[MetadataRequestTopic(name="x" * 40_000)]), bytearray()
            )
        )
