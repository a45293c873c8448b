"""Requests whose answers depend on access control entries, and what each needs: the table that Kafka's answers are
recorded for, and that ours are held to.

For every right that a request needs there is a user for each state of that right (`STATES`), who has all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidemark.broker.core.acl import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceType

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.9"
ROOT = "root"
TOPIC, ABSENT, GROUP, NEW_GROUP, TXN = "orders", "absent", "readers", "strangers", "payments"
TOKEN_OWNER, TOKEN_SECRET = "olga", "only-brokers-know-it"

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE

Right = tuple[AclOperation, ResourceType, str]


def on_topic(operation: AclOperation, name: str = TOPIC) -> Right:
    return operation, ResourceType.TOPIC, name


def on_group(operation: AclOperation, name: str = GROUP) -> Right:
    return operation, ResourceType.GROUP, name


def on_txn(operation: AclOperation) -> Right:
    return operation, ResourceType.TRANSACTIONAL_ID, TXN


def on_cluster(operation: AclOperation) -> Right:
    return operation, ResourceType.CLUSTER, CLUSTER_NAME


class World(NamedTuple):
    """What a broker has chosen itself."""

    topic_id: bytes
    token_hmac: bytes = b""  # of a delegation token whose owner is TOKEN_OWNER


@dataclass(frozen=True)
class Case:
    name: str
    version: int
    ask: Callable[[World], Any]
    needs: tuple[Right, ...]
    on_controller: bool = False
    only_denied: bool = False  # who may would change what the next one finds


@dataclass
class Table:
    cases: list[Case] = field(default_factory=list)

    def add(self, name: str, version: int, ask: Callable[[World], Any], *needs: Right, **rest: Any) -> None:
        self.cases.append(Case(name, version, ask, needs, **rest))


STATES = ("none", "allow", "deny", "prefix", "other host", "describe only", "everybody")


DENIED = ("none", "deny", "other host", "describe only")


class User(NamedTuple):
    name: str
    case: Case
    state: str  # of one of the rights, as "Describe Topic orders: none"
    acls: tuple[tuple[Any, ...], ...]  # operation, type, name, pattern, host, permission, principal


def users() -> Iterator[User]:
    """Everyone whose answer is recorded. One who needs no right at all is asked for once, as is a super user."""
    number = 0
    for case in TABLE.cases:
        if not case.only_denied:
            yield User(ROOT, case, "super user", ())
        for right in case.needs:
            others = [_acl(other) for other in case.needs if other != right]
            for state in DENIED if case.only_denied else STATES:
                varied = _varied(right, state)
                if varied is None:
                    continue
                number += 1
                operation, kind, name = right
                label = f"{operation.name} {kind.name} {name}: {state}"
                yield User(f"u{number}", case, label, (*others, *varied))
        if not case.needs:
            number += 1
            yield User(f"u{number}", case, "nothing", ())


def _acl(right: Right, **fields: Any) -> tuple[Any, ...]:
    known = {
        "pattern": PatternType.LITERAL,
        "host": "*",
        "permission": Permission.ALLOW,
        "principal": None,
    } | fields
    return (*right, known["pattern"], known["host"], known["permission"], known["principal"])


def _varied(right: Right, state: str) -> tuple[tuple[Any, ...], ...] | None:
    operation, kind, name = right
    if state == "none":
        return ()
    if state == "allow":
        return (_acl(right),)
    if state == "deny":
        return _acl(right), _acl(right, permission=Permission.DENY)
    if state == "other host":
        return (_acl(right, host=ELSEWHERE),)
    if kind == ResourceType.CLUSTER:
        return None  # it has no other name, and no prefix
    if state == "prefix":
        return (_acl((operation, kind, name[:-2]), pattern=PatternType.PREFIXED),)
    if state == "describe only":
        return None if operation == DESCRIBE else (_acl((DESCRIBE, kind, name)),)
    return (_acl((operation, kind, "*")),)


TABLE = Table()
add = TABLE.add
