"""The records of `__consumer_offsets`, in Kafka's formats.

A key begins with its type, a value with its version. Each is declared as a message is; the number given to `message`
is the type that the key carries. Other kinds of groups declare theirs beside their own code, and `register` them.
"""

from __future__ import annotations

from typing import Any, Final

from tidemark.broker.coordination.record import CoordinatorRecord, decode_record, key_prefix, value_prefix
from tidemark.protocol.schema import Bytes, api, array, blob, codec, int32, int64, message, string, uuid
from tidemark.protocol.schema import struct as part


@message(key=1, versions="0")
class OffsetCommitKey:
    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)


@message(key=2, versions="0")
class GroupMetadataKey:
    group: str = string()


@part
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+")
    session_timeout: int = int32()
    subscription: Bytes = blob()
    assignment: Bytes = blob()


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+", default=None)
    leader: str | None = string(nullable="0+", default=None)
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


_TYPES: dict[int, tuple[type[Any], type[Any]]] = {}


def register(key: type[Any], value: type[Any]) -> None:
    _TYPES[api(key).key] = (key, value)


register(OffsetCommitKey, OffsetCommitValue)
register(GroupMetadataKey, GroupMetadataValue)
_OFFSET_KEY_PREFIX: Final = key_prefix(OffsetCommitKey)
_OLD_OFFSET_KEY_PREFIX: Final = bytes(2)  # Kafka before 0.9 used type 0 for offset keys


def encode_key(key: Any) -> bytes:
    out = bytearray(key_prefix(type(key)))
    codec(type(key), 0).encode(key, out)
    return bytes(out)


def encode_value(value: Any | None, version: int) -> bytes | None:
    if value is None:
        return None
    out = bytearray(value_prefix(version))
    codec(type(value), version).encode(value, out)
    return bytes(out)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord:
    if key[:2] == _OLD_OFFSET_KEY_PREFIX:
        key = _OFFSET_KEY_PREFIX + key[2:]
    return decode_record(_TYPES, key, value)
