"""Produce requests made once and sent as they are: a loader that builds nothing leaves the machine to the broker."""

import os
import struct
import time

from tidemark.protocol.records import Record, build_batch
from tidemark.protocol.varint import put_uvarint

PRODUCE, VERSION = 0, 11  # flexible, topics by name: what both brokers and today's clients speak
TIMEOUT_MS = 30_000
_CLIENT_ID = b"bench"
_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")


class Refused(RuntimeError):
    """The broker answered with an error code."""


def batch_of(*, records: int, size: int) -> bytearray:
    """Random bytes: nothing on the way may gain by compressing or deduplicating them."""
    now_ms, value = int(time.time() * 1000), os.urandom(size)
    return build_batch(Record(key=None, value=value, timestamp=now_ms) for _ in range(records))


def request(batch: bytes | bytearray, *, topic: str, partition: int, acks: int) -> bytearray:
    """A whole frame. All have the same correlation id: answers come in the order of the requests."""
    name = topic.encode()
    body = bytearray(struct.pack(">hhih5sB", PRODUCE, VERSION, 0, len(_CLIENT_ID), _CLIENT_ID, 0))
    body += struct.pack(">BhiB", 0, acks, TIMEOUT_MS, 2)  # no transaction; one topic
    put_uvarint(body, len(name) + 1)
    body += name + struct.pack(">Bi", 2, partition)  # one partition
    put_uvarint(body, len(batch) + 1)
    body += batch
    body += bytes(3)  # no tags: of the partition, the topic, the request
    return bytearray(_SIZE.pack(len(body))) + body


def take_answers(inbox: bytearray, *, topic: str) -> int:
    """How many whole answers were in the inbox, which they leave. Raises `Refused`."""
    at = count = 0
    error_at = 4 + 4 + 1 + 1 + 1 + len(topic.encode()) + 1 + 4  # size, id, tags, topics, name, partitions, index
    while len(inbox) - at >= 4 and len(inbox) - at >= 4 + _SIZE.unpack_from(inbox, at)[0]:
        if code := _ERROR.unpack_from(inbox, at + error_at)[0]:
            raise Refused(f"a record for {topic} was refused with error {code}")
        at += 4 + _SIZE.unpack_from(inbox, at)[0]
        count += 1
    del inbox[:at]
    return count
