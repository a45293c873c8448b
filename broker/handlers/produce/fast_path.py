"""The most common produce request, answered from its bytes: one batch for one partition, no transaction, no tags.

What precedes the partition's index is the same in every such request of a connection to a topic, so it is read once and
compared from then on; the answer is one struct after a prefix that is known, too. Anything unusual is left to the
general handler, before anything has happened. What may be appended and what must wait is decided by the same
functions there.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidemark.broker.core.errors import EXPECTED, fault_of
from tidemark.broker.core.registry import NO_ANSWER, Call
from tidemark.broker.handlers.produce.acks import (
    PendingAcks,
    ProduceAnswer,
    Unacknowledged,
    is_unacknowledged,
    no_answer,
)
from tidemark.broker.handlers.produce.appending import TOPIC_IDS_FROM, appended_result, led_partition, refused_result
from tidemark.broker.replication.examination import MustWait
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tidemark.protocol.schema import DecodeError
from tidemark.protocol.varint import read_uvarint

FLEXIBLE_FROM: Final = 9
RESPONSE_HEAD: Final = bytes(9)  # size, correlation id, no tags: the dispatcher fills it in
NO_TRANSACTION: Final = 0
ONE: Final = 2  # the length of a compact array of one element
NO_TAGS_AT_ALL: Final = bytes(3)  # of partition, topic and request

_start = struct.Struct(">BhiB")  # no transactional id, acks, time-out, how many topics
_index_and_size = struct.Struct(">iB").unpack_from
# Index, no error, base offset, append time, start offset; no record errors, message or tags; no throttling, no tags.
_answer = struct.Struct(">ihqqqBBBBiB").pack


class Form(NamedTuple):
    """How such requests of one connection begin."""

    prefix: bytes
    topic: str | bytes
    acks: int
    head: bytes  # of the answer


def produce_fast(
    frame: bytearray, position: int, call: Call, *, replicas: ReplicaTable
) -> bytearray | ProduceAnswer | None:
    """The answer's bytes, but for its size and correlation id; or the answer as the general handler would give it; or
    None: nothing was done, and it is that handler's turn."""
    form: Form | None = call.memo
    if form is None or not frame.startswith(form.prefix, position):
        form = call.memo = recognise(frame, position, call.version)
        if form is None:
            return None
    start = position + len(form.prefix)
    try:
        index, size = _index_and_size(frame, start)
        start += 5
        if size > 127:
            size, start = read_uvarint(frame, start - 1)
    except (struct.error, IndexError, DecodeError):
        return None
    stop = start + size - 1
    if size < 2 or len(frame) - stop != 3 or not frame.endswith(NO_TAGS_AT_ALL):
        return None
    topic, acks = form.topic, form.acks
    hosted = replicas.topics.get(topic) if type(topic) is str else replicas.topics_by_id.get(topic)  # type: ignore[arg-type]
    partition = led_partition(hosted, index, acks, replicas)
    # Before anything in the batch is changed: the general handler must find it as it came.
    if partition is None or partition.must_queue(stop - start):
        return None
    try:
        appended = partition.append(memoryview(frame)[start:stop], replicas.now_ms())
    except MustWait:
        return None
    except EXPECTED as error:
        fault = fault_of(error, where=f"{partition.topic}-{partition.index}")
        response = _response(partition, refused_result(index, fault))
        return response if acks else no_answer(response)
    if acks == 0:
        return NO_ANSWER
    base_offset, last_offset, append_time, _ = appended
    if is_unacknowledged(partition, last_offset, acks):
        result = appended_result(index, appended, partition)
        waiting = [Unacknowledged(partition, last_offset, result)]
        timeout_ms = _start.unpack_from(form.prefix)[2]
        return PendingAcks(_response(partition, result), waiting, acks=acks, timeout_ms=timeout_ms).deferred
    out = bytearray(form.head)
    out += _answer(index, 0, base_offset, append_time, partition.log.start_offset, 1, 0, 0, 0, 0, 0)
    return out


def topic_of(frame: bytearray, position: int, call: Call) -> str | bytes | None:
    """The topic that `produce_fast` would append to, by name or id; None if it would leave it to the handler."""
    form: Form | None = call.memo
    if form is None or not frame.startswith(form.prefix, position):
        form = call.memo = recognise(frame, position, call.version)
    return None if form is None else form.topic


def _response(partition: Partition, result: PartitionProduceResponse) -> ProduceResponse:
    topic = TopicProduceResponse(name=partition.topic, topic_id=partition.topic_id, partition_responses=[result])
    return ProduceResponse(responses=[topic])


def recognise(frame: bytearray, position: int, version: int) -> Form | None:
    """The form of a request that begins as it must, or None."""
    try:
        transactional, acks, _timeout_ms, topics = _start.unpack_from(frame, position)
        if version < FLEXIBLE_FROM or transactional != NO_TRANSACTION or topics != ONE or not -1 <= acks <= 1:
            return None
        name_at = position + _start.size
        size, at = (16, name_at) if version >= TOPIC_IDS_FROM else read_uvarint(frame, name_at)
        stop = at + size - (version < TOPIC_IDS_FROM)
        if frame[stop] != ONE:
            return None
        named = bytes(frame[at:stop])
        topic = named if version >= TOPIC_IDS_FROM else named.decode()
    except (struct.error, IndexError, DecodeError, UnicodeDecodeError):
        return None
    head = RESPONSE_HEAD + bytes([ONE]) + frame[name_at:stop] + bytes([ONE])
    return Form(bytes(frame[position : stop + 1]), topic, acks, head)
