"""Client quotas in the metadata (KIP-546): what an entity is, and the decisions about changes to its quotas.

An entity is a user, a client id, a pair of both, or an address; each by name, or (None) the default of its kind.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeAlias

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.repeats import repeated
from tidemark.broker.metadata.records import ClientQuotaRecord, QuotaEntityPart
from tidemark.protocol.errors import ErrorCode

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

INTEGRAL_MAX: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
CLIENT_KEYS: Final = frozenset((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE))
ADDRESS_KEYS: Final = frozenset((CONNECTION_CREATION_RATE,))
NAME_BYTES_MAX: Final = 1024
ENTITIES_MAX: Final = 100_000  # every node holds all of them in memory

Entity: TypeAlias = "tuple[tuple[str, str | None], ...]"
"""Kinds and names, sorted by kind: (("client-id", "app"), ("user", None))."""
ClientQuotas: TypeAlias = "Mapping[Entity, Mapping[str, float]]"

NO_QUOTAS: Final[ClientQuotas] = MappingProxyType({})


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Raises Refused for one that there cannot be."""
    listed = list(islice(parts, len(ENTITY_TYPES) + 1))  # of more, one is there twice, and these are enough to see it
    if not listed:
        raise _invalid("Invalid empty client quota entity.")
    for kind, name in listed:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}.")
        if name is not None and not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise _invalid(f"Empty {kind} not supported." if not name else f"The {kind} is too long.")
    if twice := repeated([kind for kind, _ in listed]):
        raise _invalid(f"Invalid client quota entity, duplicate entity entry {twice.pop()}.")
    found = dict(listed)
    if IP in found:
        _check_address(found)
    return tuple(sorted(found.items()))


def _check_address(found: Mapping[str, str | None]) -> None:
    if len(found) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId.")
    if (address := found[IP]) is None:
        return
    try:
        ipaddress.ip_address(address)
    except ValueError:
        # Kafka also takes host names, and looks them up. A name would be looked up on every node, at any time.
        raise _invalid(f"{address} is not a valid IP.") from None


def alter_entity(
    current: ClientQuotas, entity: Entity, changes: Sequence[tuple[str, float | None]]
) -> list[ClientQuotaRecord]:
    """The records of one entity's changes; None takes a quota away. All of them are fine, or Refused is raised."""
    before = current.get(entity, {})
    allowed = ADDRESS_KEYS if entity[0][0] == IP else CLIENT_KEYS
    if twice := repeated([key for key, _ in changes]):
        raise _invalid(f"The quota {twice.pop()} is altered twice.")
    for key, value in changes:
        if value is not None:
            _check_value(key, value, allowed)
    if entity not in current and len(current) >= ENTITIES_MAX and any(value is not None for _, value in changes):
        raise Refused(ErrorCode.POLICY_VIOLATION, f"There are quotas of {len(current)} entities, and no room for more.")
    return [_record(entity, key, value) for key, value in changes if before.get(key) != value]


def _check_value(key: str, value: float, allowed: frozenset[str]) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}.")
    if not value > 0:  # not a number is not greater, either
        raise _invalid(f"Quota {key} must be greater than 0.")
    if not math.isfinite(value):
        raise _invalid(f"Quota {key} must be finite.")
    if (most := INTEGRAL_MAX.get(key)) is not None:
        if value > most:
            raise _invalid(f"Proposed value for {key} is too large.")
        if value != int(value):
            raise _invalid(f"Quota {key} cannot be a fractional value.")


def _record(entity: Entity, key: str, value: float | None) -> ClientQuotaRecord:
    parts = [QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=0.0 if value is None else value, remove=value is None)


def apply_record(draft: dict[Entity, Mapping[str, float]], record: ClientQuotaRecord) -> None:
    """What the record says, in quotas that nobody else sees yet."""
    entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
    values = dict(draft.get(entity, {}))
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    if values:
        draft[entity] = values
    else:
        draft.pop(entity, None)


def records_of(quotas: ClientQuotas) -> Iterable[ClientQuotaRecord]:
    for entity, values in quotas.items():
        for key, value in values.items():
            yield _record(entity, key, value)


def _invalid(reason: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, reason)
