"""What a request may hold in all, however it is spread: as Kafka 4.4, a million elements and ten thousand tags."""

from __future__ import annotations

import pytest

from tidemark.protocol.headers import read_request_header
from tidemark.protocol.messages.metadata import MetadataRequest
from tidemark.protocol.messages.produce import ProduceRequest
from tidemark.protocol.schema import DecodeError, codec
from tidemark.protocol.varint import TAGS_MAX, put_uvarint


def tags(count: int) -> bytearray:
    out = bytearray()
    put_uvarint(out, count)
    for tag in range(count):
        put_uvarint(out, tag + 100)
        out.append(0)
    return out


def produce_with_tagged_topics(topics: int, each: int) -> bytearray:
    out = bytearray(b"\0\0\1\0\0\0\0")
    put_uvarint(out, topics + 1)
    for _ in range(topics):
        out += b"\2t\1" + tags(each)
    return out + b"\0"


def test_a_header_with_too_many_tags_is_refused() -> None:
    start = b"\0\3\0\xc8\0\0\0\1\xff\xff"
    assert read_request_header(start + tags(TAGS_MAX), first_flexible={3: 9})[0].correlation_id == 1
    with pytest.raises(DecodeError, match="tagged fields"):
        read_request_header(start + tags(TAGS_MAX + 1), first_flexible={3: 9})


def test_tags_are_counted_over_the_whole_request() -> None:
    decode = codec(ProduceRequest, 12).decode
    assert len(decode(memoryview(produce_with_tagged_topics(100, 100))).topic_data) == 100
    with pytest.raises(DecodeError, match="tagged fields"):
        decode(memoryview(produce_with_tagged_topics(101, 100)))


def test_more_than_a_million_elements_are_refused() -> None:
    body = (1_000_001).to_bytes(4, "big") + bytes(2 * 1_000_001)
    with pytest.raises(DecodeError, match="elements"):
        codec(MetadataRequest, 1).decode(memoryview(body))
