"""One record of a coordinator's topic: what it is before it is encoded, and how it is decoded."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemark.protocol.schema import api, codec

_put_type = struct.Struct(">h").pack
_get_type = struct.Struct(">h").unpack_from

RecordTypes = Mapping[int, tuple[type[Any], type[Any]]]  # by the type that a key begins with: key and value


class CoordinatorRecord(NamedTuple):
    """A key with its value; a value of None is a tombstone."""

    key: Any
    value: Any | None
    version: int = 0  # of the value


class UnknownCoordinatorRecord(ValueError):
    """A record of a type or version that we do not know: written by a newer broker, or by no coordinator at all."""


def key_prefix(kind: type[Any]) -> bytes:
    return _put_type(api(kind).key)


def value_prefix(version: int) -> bytes:
    return _put_type(version)


def decode_record(types: RecordTypes, key: bytes, value: bytes | None) -> CoordinatorRecord:
    """A record as it was written. Raises DecodeError if it is malformed, UnknownCoordinatorRecord for a new type."""
    if len(key) < 2 or (value is not None and len(value) < 2):
        raise UnknownCoordinatorRecord("a record without a type")
    (kind,) = _get_type(key)
    if kind not in types:
        raise UnknownCoordinatorRecord(f"record type {kind}")
    key_type, value_type = types[kind]
    decoded = codec(key_type, 0).decode(memoryview(key), 2)
    if value is None:
        return CoordinatorRecord(decoded, None)
    (version,) = _get_type(value)
    if version not in api(value_type).versions:
        raise UnknownCoordinatorRecord(f"version {version} of record type {kind}")
    return CoordinatorRecord(decoded, codec(value_type, version).decode(memoryview(value), 2), version)
