"""What one principal may do from one host, by the entries that there are now. Pure: no clock, no log, no broker.

A denial wins over any permission. Who may read, write, delete or alter may describe; who may alter settings may
describe them; a denial of these implies nothing. What no entry allows is denied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from tidemark.broker.core.acl import (
    ANYTHING,
    EVERYBODY,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from tidemark.broker.core.principal import Principal
from tidemark.broker.metadata.acl_index import NOTHING, AclIndex

REMEMBERED_MAX: Final = 10_000  # decisions of one client: then they are made again
NAME_MAX: Final = 256  # characters of a name that a decision is remembered for

IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset((AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS,)),
}
NOTHING_IMPLIES: Final[frozenset[AclOperation]] = frozenset()


class Decision(NamedTuple):
    is_allowed: bool
    reason: str
    rule: Acl | None = None


SUPER_USER: Final = Decision(True, "a super user may do everything")
NO_ACL_FOUND: Final = Decision(True, "no entry is about this resource, and allow.everyone.if.no.acl.found is true")
DEFAULT: Final = Decision(False, "no entry allows it")

Resource = tuple[AclOperation, ResourceType, str]


class Budget:
    """How many decisions may still be remembered, of all clients together."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Rights:
    __slots__ = (
        "_allows_without_acl",
        "_budget",
        "_decisions",
        "_index",
        "_is_super",
        "_literal",
        "_prefixed",
        "host",
        "principal",
    )

    def __init__(
        self,
        principal: Principal,
        host: str,
        index: AclIndex,
        *,
        is_super: bool,
        allows_without_acl: bool,
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget or Budget(REMEMBERED_MAX)
        self.principal = principal
        self.host = host
        self._index = index
        self._is_super = is_super
        self._allows_without_acl = allows_without_acl
        self._decisions: dict[Resource, Decision] = {}
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = defaultdict(list)
        self._prefixed: dict[ResourceType, dict[str, list[Acl]]] = defaultdict(lambda: defaultdict(list))
        for acl in applying(index, principal, host):
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefixed[acl.resource_type][acl.name].append(acl)
            else:
                self._literal[acl.resource_type, acl.name].append(acl)

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return self.decide(operation, resource_type, name).is_allowed

    def decide(self, operation: AclOperation, resource_type: ResourceType, name: str) -> Decision:
        key = (operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(operation, resource_type, name)
            self._remember(key, decision)
        return decision

    def _remember(self, key: Resource, decision: Decision) -> None:
        """Names come from clients, who may invent any number of them."""
        if len(key[2]) > NAME_MAX:
            return
        if len(self._decisions) >= REMEMBERED_MAX:
            self._decisions.clear()
        self._decisions[key] = decision
        self._budget.left -= 1

    def _decide(self, operation: AclOperation, resource_type: ResourceType, name: str) -> Decision:
        if self._is_super:
            return SUPER_USER
        allowed: Acl | None = None
        for acl in self._about(resource_type, name):
            if acl.permission == Permission.DENY:
                if acl.operation in (operation, AclOperation.ALL):
                    return Decision(False, "denied by a rule", acl)
            elif allowed is None and _allows(acl, operation):
                allowed = acl
        if allowed is not None:
            return Decision(True, "allowed by a rule", allowed)
        if self._allows_without_acl and not self._index.has_any_for(resource_type, name):
            return NO_ACL_FOUND
        return DEFAULT

    def _about(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        yield from self._literal.get((resource_type, name), ())
        if name != ANYTHING:
            yield from self._literal.get((resource_type, ANYTHING), ())
        for prefix, acls in self._prefixed.get(resource_type, {}).items():
            if name.startswith(prefix):
                yield from acls

    def may_somewhere(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of the type, existing or not, on which it is allowed (KIP-679)."""
        if self.may(operation, resource_type, "hardcode"):  # as Kafka: super users, and what is allowed by default
            return True
        acls = [acl for acl in self._all(resource_type) if acl.operation in (operation, AclOperation.ALL)]
        denied = [acl for acl in acls if acl.permission == Permission.DENY]
        allowed = [acl for acl in acls if acl.permission == Permission.ALLOW]
        return any(not any(_dominates(deny, allow) for deny in denied) for allow in allowed)

    def _all(self, resource_type: ResourceType) -> Iterator[Acl]:
        for (kind, _), acls in self._literal.items():
            if kind == resource_type:
                yield from acls
        for acls in self._prefixed.get(resource_type, {}).values():
            yield from acls


def applying(index: AclIndex, principal: Principal, host: str) -> Iterator[Acl]:
    """The entries about this principal, or everybody, on this host."""
    about: Iterable[Acl] = (
        *index.by_principal.get(str(principal), NOTHING),
        *index.by_principal.get(EVERYBODY, NOTHING),
    )
    return (acl for acl in about if host_matches(acl.host, host))


def _allows(acl: Acl, operation: AclOperation) -> bool:
    return acl.operation in (operation, AclOperation.ALL) or acl.operation in IMPLIED_BY.get(operation, NOTHING_IMPLIES)


def _dominates(deny: Acl, allow: Acl) -> bool:
    """Whether nothing is left of what is allowed."""
    if deny.pattern_type == PatternType.PREFIXED:
        return allow.name.startswith(deny.name) and (
            allow.pattern_type == PatternType.PREFIXED or allow.name != ANYTHING
        )
    return deny.name == ANYTHING or (deny.name == allow.name and allow.pattern_type == PatternType.LITERAL)


def host_matches(pattern: str, host: str) -> bool:
    if pattern in (ANYTHING, host):
        return True
    if "/" not in pattern:
        return plain_address(host) == pattern
    network = _network(pattern)
    if network is None:
        return False
    try:
        return ip_address(plain_address(host)) in network
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def _network(pattern: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(pattern, strict=False)
    except ValueError:
        return None


def plain_address(host: str) -> str:
    """An IPv4 address that came in by IPv6 is written as the one it is."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)
