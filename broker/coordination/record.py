"""What a coordinator writes down: one record of its topic, before it is bytes."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from tidemark.protocol.schema import api

_put_type = struct.Struct(">h").pack


class CoordinatorRecord(NamedTuple):
    """One record: a value under its key, or (None) that there is none any more."""

    key: Any
    value: Any | None
    version: int = 0  # of the value


class UnknownRecord(ValueError):
    """A record of a type that we do not know: a newer version's, or not a coordinator's at all."""


def key_prefix(kind: type[Any]) -> bytes:
    return _put_type(api(kind).key)


def value_prefix(version: int) -> bytes:
    return _put_type(version)
