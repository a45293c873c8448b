"""What the controller decides about access control entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from ipaddress import ip_network
from typing import Final, Protocol, TypeVar

from tidemark.broker.core.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import Image, acl_record
from tidemark.broker.metadata.records import Record
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_acls import AclCreation

ACLS_MAX: Final = 50_000  # about 20 MB of memory on every node
TEXT_MAX: Final = 1_000  # characters of a name, a principal or a host

E = TypeVar("E", bound=IntEnum)
T = TypeVar("T")
R = TypeVar("R")


class AclFilterFields(Protocol):
    """The fields of a filter, as DescribeAcls and DeleteAcls have them."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def read_acl(creation: AclCreation) -> Acl:
    """An entry as a request names it; refused if it is not one that can be kept."""
    acl = Acl(
        _known(ResourceType, creation.resource_type, but=(ResourceType.ANY,)),
        creation.resource_name,
        _known(PatternType, creation.resource_pattern_type, but=(PatternType.ANY, PatternType.MATCH)),
        creation.principal,
        creation.host,
        _known(AclOperation, creation.operation, but=(AclOperation.ANY,)),
        _known(Permission, creation.permission_type, but=(Permission.ANY,)),
    )
    if problem := _problem(acl):
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    return acl


def read_filter(wanted: AclFilterFields) -> AclFilter:
    return AclFilter(
        _known(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        _known(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        _known(AclOperation, wanted.operation),
        _known(Permission, wanted.permission_type),
    )


def read_each(read: Callable[[T], R], items: Iterable[T]) -> list[R | Refused]:
    """One that cannot be read does not hold up the others."""

    def outcome(item: T) -> R | Refused:
        try:
            return read(item)
        except Refused as refusal:
            return refusal

    return [outcome(item) for item in items]


def _known(kind: type[E], value: int, *, but: Sequence[E] = ()) -> E:
    try:
        found = kind(value)
    except ValueError:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{kind.__name__} {value} is unknown.") from None
    if found in but:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{kind.__name__} {found.name} belongs into filters only.")
    return found


def _problem(acl: Acl) -> str | None:
    kind, colon, who = acl.principal.partition(":")
    if not kind or not colon or not who:
        return f"The principal must be like User:name, not {acl.principal!r}."
    if not acl.name:
        return "The name of the resource is empty."
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only name of a CLUSTER resource is {CLUSTER_NAME}."
    if not acl.host:
        return "The host is empty; * stands for all."
    if max(len(acl.name), len(acl.principal), len(acl.host)) > TEXT_MAX:
        return f"A name, a principal or a host has at most {TEXT_MAX} characters."
    if "/" in acl.host:
        try:
            ip_network(acl.host, strict=False)
        except ValueError as error:
            return f"The host is not a range of addresses: {error}."
    return None


def add_acls(image: Image, acls: Iterable[Acl]) -> list[Record]:
    """Those that are not there yet."""
    new = [acl for acl in dict.fromkeys(acls) if acl not in image.acls]
    if image.acls.count + len(new) > ACLS_MAX:
        raise Refused(ErrorCode.POLICY_VIOLATION, f"A cluster has at most {ACLS_MAX} access control entries.")
    return [acl_record(acl) for acl in new]


def matching(image: Image, wanted: AclFilter) -> list[Acl]:
    return [acl for acl in image.acls if wanted.matches(acl)]


def remove_acls(acls: Iterable[Acl]) -> list[Record]:
    return [acl_record(acl, removed=True) for acl in dict.fromkeys(acls)]
