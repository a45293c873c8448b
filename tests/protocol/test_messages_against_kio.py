"""Every message, every version, against kio: field by field and byte by byte, both ways."""

from __future__ import annotations

import datetime
import io
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tidemark.protocol.apis import apis
from tidemark.protocol.schema import Struct, api, codec, fields_of

ROUNDS = 6
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def kio_class(cls: type[Any], version: int) -> Any:
    kind = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    return getattr(load_payload_module(api(cls).key, version, kind), cls.__name__)  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """A value of kio's as ours would be."""
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    return value.bytes if isinstance(value, uuid.UUID) else value


def assert_same(ours: Any, theirs: Any, version: int, path: str) -> None:
    if isinstance(ours, Struct):
        for name, field in fields_of(type(ours)).items():
            if version in field.versions:
                # kio drops the unit where it makes a duration or a point in time of a number
                spellings = (name, f"{name}_", name.removesuffix("_ms"))  # `id_`: they avoid Python's own names
                found = next(getattr(theirs, each) for each in spellings if hasattr(theirs, each))
                if found is None and field.kind == "uuid":
                    found = bytes(16)
                if found is None and field.kind == "int64":
                    found = -1
                assert_same(getattr(ours, name), found, version, f"{path}.{name}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), path
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(one, other, version, f"{path}[{index}]")
    elif theirs is None and isinstance(ours, bytes):
        assert ours == bytes(16), path  # an id of zeros, in a list of ids
    else:
        assert ours == plain(theirs), path


def test_kio_and_we_agree(
    message_class: type[Any], each_version: Callable[..., None], make_message: Callable[..., Any]
) -> None:
    def check(version: int) -> None:
        theirs_class = kio_class(message_class, version)
        read, write = entity_reader(theirs_class), entity_writer(theirs_class)
        for seed in range(ROUNDS):
            message = make_message(message_class, version, seed)
            out = bytearray()
            codec(message_class, version).encode(message, out)
            theirs, size = read(bytes(out), 0)
            assert size == len(out)
            assert_same(message, theirs, version, message_class.__name__)
            with io.BytesIO() as buffer:
                write(buffer, theirs)
                written = buffer.getvalue()
            assert written == out
            assert codec(message_class, version).decode(memoryview(written)) == message

    each_version(check)


@pytest.mark.parametrize("key", sorted(key for key, entry in apis().items() if not entry.is_private))
def test_kio_knows_every_version_we_declare(key: int) -> None:
    entry = apis()[key]
    for version in range(entry.versions.first, entry.versions.last + 1):
        assert kio_class(entry.request, version).__flexible__ == (version in api(entry.request).flexible)
        assert kio_class(entry.response, version).__flexible__ == (version in api(entry.response).flexible)
