"""Random messages, made from the same field tables that codecs are made from."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidemark.protocol.apis import apis
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.schema import Field, fields_of

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 deprecates; once imported, it is quiet.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.record  # noqa: F401

INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UINT_BITS = {"uint16": 16, "uint32": 32}
ERROR_CODES = [int(code) for code in ErrorCode]
TIME_MAX = 4_102_444_800_000  # 2100: within what an oracle that turns times into datetimes can hold


def all_messages() -> Iterator[Any]:
    """Every message class of Kafka's, with the versions that it declares."""
    for entry in apis().values():
        if entry.is_private:
            continue
        for cls in (entry.request, entry.response):
            versions = range(entry.versions.first, entry.versions.last + 1)
            yield pytest.param(cls, versions, id=cls.__name__)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "message_class" in metafunc.fixturenames:
        metafunc.parametrize(("message_class", "message_versions"), list(all_messages()))


@pytest.fixture
def each_version(message_versions: range) -> Callable[[Callable[[int], None]], None]:
    """Does something for each version of a message. (A test for each of 538 would cost more than what it does.)"""

    def do(check: Callable[[int], None]) -> None:
        for version in message_versions:
            try:
                check(version)
            except BaseException as failure:
                failure.add_note(f"in version {version}")
                raise

    return do


class Maker:
    """Makes messages whose every field has a value that its type, its version and the oracles allow."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def message(self, cls: type[Any], version: int, depth: int = 0) -> Any:
        values = {
            name: self.value(name, field, version, depth)
            for name, field in fields_of(cls).items()
            if version in field.versions
        }
        return cls(**values)

    def value(self, name: str, field: Field, version: int, depth: int) -> Any:
        chance = self.random.random()
        if version in field.nullable and chance < 0.25:
            return None
        if field.tag is not None and chance < 0.5:
            return field.fresh()
        if field.kind == "struct":
            return self.message(field.of, version, depth + 1)
        if field.kind == "array":
            count = self.random.choice((0, 1, 1, 2, 3, 130 if depth == 0 and isinstance(field.of, str) else 4))
            return [self.item(field.of, name, version, depth) for _ in range(count)]
        return self.primitive(name, field.kind)

    def item(self, of: Any, name: str, version: int, depth: int) -> Any:
        return self.primitive(name, of) if isinstance(of, str) else self.message(of, version, depth + 1)

    def primitive(self, name: str, kind: str) -> Any:
        rng = self.random
        if "error_code" in name:
            return rng.choice(ERROR_CODES)
        if kind == "int64" and (name.endswith("_ms") or "timestamp" in name):
            # kio has no place for "never" in DescribeTransactions, nor in the answers about delegation tokens
            never = 0 if name == "transaction_start_time_ms" or name.endswith("_timestamp_ms") else -1
            return rng.choice((never, 0, rng.randrange(TIME_MAX)))
        if kind in INT_BITS:
            half = 1 << INT_BITS[kind] - 1
            return rng.choice((-half, half - 1, -1, 0, 1, rng.randrange(-half, half)))
        if kind in UINT_BITS:
            return rng.choice((0, (1 << UINT_BITS[kind]) - 1, rng.randrange(1 << UINT_BITS[kind])))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.uniform(-1e9, 1e9)
        if kind == "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        if kind == "string":
            return rng.choice(("", "tidemark", "Flutmarke ≈ 潮位", "x" * rng.choice((126, 127, 128, 300))))
        return rng.randbytes(rng.choice((0, 1, 61, 126, 127, 128, 200, 16383, 16384)))


@pytest.fixture
def make_message() -> Callable[[type[Any], int, int], Any]:
    """A random message: the same one for the same class, version and seed."""

    def make(cls: type[Any], version: int, seed: int) -> Any:
        return Maker(f"{cls.__name__} {version} {seed}").message(cls, version)

    return make
