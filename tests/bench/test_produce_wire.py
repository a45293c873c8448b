"""The frames of the benchmarks' own loaders are read as they are meant."""

import struct

import pytest

from bench import produce_wire
from tidemark.protocol.apis import first_flexible
from tidemark.protocol.headers import read_request_header, response_room
from tidemark.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidemark.protocol.records import check_single_batch
from tidemark.protocol.schema import codec

TOPIC = "a-topic"


def answer(*, error_code: int = 0) -> bytes:
    result = PartitionProduceResponse(index=3, error_code=error_code, base_offset=7)
    body = ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[result])])
    out = bytearray(response_room(ProduceResponse, produce_wire.VERSION))
    codec(ProduceResponse, produce_wire.VERSION).encode(body, out)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)


def test_a_request_is_read_as_it_was_meant() -> None:
    batch = produce_wire.batch_of(records=20, size=100)
    frame = produce_wire.request(batch, topic=TOPIC, partition=3, acks=-1)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, body_at = read_request_header(frame[4:], first_flexible=first_flexible())
    assert (header.api_key, header.api_version) == (0, produce_wire.VERSION)
    request = codec(ProduceRequest, header.api_version).decode(memoryview(frame)[4:], body_at)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert partition.records is not None
    assert (request.acks, topic.name, partition.index, bytes(partition.records)) == (-1, TOPIC, 3, bytes(batch))
    assert check_single_batch(partition.records).record_count == 20


def test_whole_answers_are_counted_and_the_rest_waits_for_more() -> None:
    inbox = bytearray(2 * answer() + answer()[:10])
    assert produce_wire.take_answers(inbox, topic=TOPIC) == 2
    inbox += answer()[10:]
    assert produce_wire.take_answers(inbox, topic=TOPIC) == 1
    assert not inbox


def test_a_refused_record_is_an_error() -> None:
    with pytest.raises(produce_wire.Refused, match="error 6"):
        produce_wire.take_answers(bytearray(answer(error_code=6)), topic=TOPIC)
