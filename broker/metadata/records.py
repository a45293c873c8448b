"""What the metadata log says, one record per fact. Each is declared as a Kafka message is, so that it can grow."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from tidemark.broker.core.sliced_work import Job
from tidemark.protocol.schema import (
    api,
    array,
    blob,
    boolean,
    codec,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    uuid,
)
from tidemark.protocol.schema import struct as part


@part
class Endpoint:
    name: str = string()
    host: str = string()
    port: int = int32()
    security_protocol: str = string()


@part
class FeatureRange:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


# Fields with a tag came later: records without them still decode, and a default costs no bytes.
@message(key=1, versions="0", flexible="0+")
class RegisterBrokerRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()
    rack: str | None = string(nullable="0+", default=None)
    endpoints: list[Endpoint] = array(Endpoint)
    incarnation_id: bytes = uuid(tag=0)
    fenced: bool = boolean(tag=1)
    in_controlled_shutdown: bool = boolean(tag=2)
    features: list[FeatureRange] = array(FeatureRange, tag=3)
    log_dirs: list[bytes] = array("uuid", tag=4)  # those that work; from level 3 on


@message(key=2, versions="0", flexible="0+")
class TopicRecord:
    name: str = string()
    topic_id: bytes = uuid()


@message(key=3, versions="0", flexible="0+")
class PartitionRecord:
    topic_id: bytes = uuid()
    partition_id: int = int32()
    replicas: list[int] = array("int32")
    isr: list[int] = array("int32")
    leader: int = int32()
    leader_epoch: int = int32()
    partition_epoch: int = int32()
    elr: list[int] = array("int32", tag=0)
    last_known_elr: list[int] = array("int32", tag=1)
    adding: list[int] = array("int32", tag=2)
    removing: list[int] = array("int32", tag=3)
    leader_recovery_state: int = int8(tag=4)
    directories: list[bytes] = array("uuid", tag=5)  # of the replicas, in their order; from level 3 on


@message(key=4, versions="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: bytes = uuid()


@message(key=5, versions="0", flexible="0+")
class ConfigRecord:
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+", default=None)


@message(key=6, versions="0", flexible="0+")
class ProducerIdsRecord:
    next_producer_id: int = int64()


@message(key=7, versions="0", flexible="0+")
class BrokerStateRecord:
    """A registered broker is fenced or not, is on its way out or not."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: bool = boolean()
    in_controlled_shutdown: bool = boolean()


@message(key=8, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()


@message(key=9, versions="0", flexible="0+")
class FeatureLevelRecord:
    """Level 0 turns the feature off."""

    name: str = string()
    level: int = int16()


@message(key=10, versions="0", flexible="0+")
class ClusterRecord:
    """Facts about the cluster as a whole."""

    cluster_id: str = string()


# From here on: level 3 (features.check_security_level).
@message(key=20, versions="0", flexible="0+")
class ScramCredentialRecord:
    """What is needed to check a user's password, and not enough to log in with it."""

    user: str = string()
    mechanism: int = int8()  # Kafka's number
    salt: bytes = blob()
    stored_key: bytes = blob()
    server_key: bytes = blob()
    iterations: int = int32()


@message(key=21, versions="0", flexible="0+")
class RemoveScramCredentialRecord:
    user: str = string()
    mechanism: int = int8()


@message(key=22, versions="0", flexible="0+")
class DelegationTokenRecord:
    """A token, but for its HMAC: that is made from the id and a key that only the nodes' settings have."""

    token_id: str = string()
    owner: str = string()  # a principal as Type:name
    requester: str = string()
    renewers: list[str] = array("string")
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiry_timestamp: int = int64()


@message(key=23, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    token_id: str = string()


@message(key=30, versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An access control entry, or (`removed`) its end."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()
    removed: bool = boolean()


@part
class QuotaEntityPart:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+", default=None)  # None: the default of its type


@message(key=40, versions="0", flexible="0+")
class ClientQuotaRecord:
    """One quota of an entity, or (`remove`) its end."""

    entity: list[QuotaEntityPart] = array(QuotaEntityPart)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


Record = (
    RegisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | RemoveTopicRecord
    | ConfigRecord
    | ProducerIdsRecord
    | BrokerStateRecord
    | UnregisterBrokerRecord
    | FeatureLevelRecord
    | ClusterRecord
    | ScramCredentialRecord
    | RemoveScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | AccessControlEntryRecord
    | ClientQuotaRecord
)

_TYPES: Final[dict[int, type[Any]]] = {api(cls).key: cls for cls in get_args(Record)}
_HEAD = struct.Struct(">HBI")  # record type, version, length of the body
_VERSION: Final = 0


def encode_records(records: Iterable[Record]) -> bytes:
    """One journal entry: all of these happen together or not at all."""
    out = bytearray()
    for record in records:
        _put(out, record)
    return bytes(out)


def encode_records_in_slices(records: Iterable[Record]) -> Job[bytes]:
    """As `encode_records`, for very many."""
    out = bytearray()
    for record in records:
        _put(out, record)
        yield
    return bytes(out)


def _put(out: bytearray, record: Record) -> None:
    body = bytearray()
    codec(type(record), _VERSION).encode(record, body)
    out += _HEAD.pack(api(type(record)).key, _VERSION, len(body))
    out += body


class UnknownMetadataRecord(RuntimeError):
    """The metadata was written by a newer version of the software."""

    def __init__(self, key: int, version: int) -> None:
        super().__init__(
            f"the metadata has a record of type {key}, version {version}, which this version of Tidemark does not know:"
            " start the newer version that wrote it"
        )


def decode_records(payload: bytes) -> Iterator[Record]:
    view, position = memoryview(payload), 0
    while position < len(view):
        key, version, length = _HEAD.unpack_from(view, position)
        position += _HEAD.size
        if key not in _TYPES or version > _VERSION:
            raise UnknownMetadataRecord(key, version)
        yield codec(_TYPES[key], version).decode(view[position : position + length])
        position += length
