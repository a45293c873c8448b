"""Every message and version that kafka-python knows, field by field and byte by byte, both ways."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest

from tidemark.protocol.apis import apis
from tidemark.protocol.schema import Struct, api, codec, fields_of

ROUNDS = 6
PACKAGES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)

# What kafka-python has no messages for. They are held against kio, and against themselves in test_schema.py.
UNKNOWN_TO_KAFKA_PYTHON = {
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "AddRaftVoter",
    "AllocateProducerIds",
    "AlterPartition",
    "AssignReplicasToDirs",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "ExpireDelegationToken",
    "RemoveRaftVoter",
    "RenewDelegationToken",
    "UnregisterBroker",
}


def oracle(name: str) -> Any:
    return next((getattr(package, name) for package in PACKAGES if hasattr(package, name)), None)


def attribute(theirs: Any, name: str) -> Any:
    if name in type(theirs)._struct.fields:
        return getattr(theirs, name)
    # kafka-python gives the sets of operations a common name
    return getattr(theirs, name.removeprefix("cluster_").removeprefix("topic_"))


def plain(value: Any, kind: str) -> Any:
    """A value of kafka-python's as ours would be."""
    if kind == "uuid":
        return value.bytes if isinstance(value, uuid.UUID) else bytes(16)
    if kind == "int32" and (value is None or isinstance(value, set)):  # a set of bits
        bits = sum(1 << bit for bit in ({31} if value is None else value))
        return bits - (1 << 32) if bits >> 31 else bits
    return value


def assert_same(ours: Any, theirs: Any, version: int, path: str) -> None:
    for name, field in fields_of(type(ours)).items():
        if version not in field.versions:
            continue
        value, found = getattr(ours, name), attribute(theirs, name)
        where = f"{path}.{name}"
        if field.tag is not None and field.kind == "struct" and value == field.default:
            continue  # was left out, and kafka-python has no default for it
        if isinstance(value, Struct):
            assert_same(value, found, version, where)
        elif field.kind == "array" and value is not None and not isinstance(field.of, str):
            assert len(value) == len(found), where
            for index, (one, other) in enumerate(zip(value, found, strict=True)):
                assert_same(one, other, version, f"{where}[{index}]")
        elif field.kind == "array" and value is not None:
            assert value == [plain(item, field.of) for item in found], where
        else:
            assert value == plain(found, field.kind), where


def test_kafka_python_and_we_agree(
    message_class: type[Any], each_version: Callable[..., None], make_message: Callable[..., Any]
) -> None:
    def check(version: int) -> None:
        theirs_class = oracle(message_class.__name__)
        if theirs_class is None:
            assert any(message_class.__name__.startswith(name) for name in UNKNOWN_TO_KAFKA_PYTHON)
            return
        for seed in range(ROUNDS):
            message = make_message(message_class, version, seed)
            if message_class.__name__ == "ApiVersionsResponse":
                message.error_code = 0  # kafka-python takes any other for an answer in version 0
            out = bytearray()
            codec(message_class, version).encode(message, out)
            theirs = theirs_class.decode(bytes(out), version=version)
            assert_same(message, theirs, version, message_class.__name__)
            theirs._header = None
            written = theirs.encode()
            assert codec(message_class, version).decode(memoryview(bytes(written))) == message
            assert written == out

    each_version(check)


def test_the_list_of_what_kafka_python_does_not_know_is_complete() -> None:
    unknown = {
        entry.name for entry in apis().values() if not entry.is_private and oracle(entry.name + "Request") is None
    }
    assert unknown == UNKNOWN_TO_KAFKA_PYTHON


@pytest.mark.parametrize("key", sorted(key for key, entry in apis().items() if not entry.is_private))
def test_kafka_python_knows_every_version_we_declare(key: int) -> None:
    entry = apis()[key]
    if entry.name in UNKNOWN_TO_KAFKA_PYTHON:
        return
    theirs = oracle(entry.name + "Request")
    assert key == theirs.API_KEY
    first, last = theirs.valid_versions
    assert first <= entry.versions.first
    assert entry.versions.last <= last
    for version in range(first, last + 1):
        assert theirs.flexible_version_q(version) == (version in api(entry.request).flexible)
