"""Access control entries: who may, or may not, do what with which resource, from where (KIP-11).

The numbers are those of Kafka's protocol. An entry is a value: two entries that say the same are the same entry.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

ANYTHING: Final = "*"  # the literal name of every resource, and every host
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"  # the one resource of type CLUSTER


class ResourceType(IntEnum):
    ANY = 1  # in filters only
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """KIP-290."""

    ANY = 1  # in filters only
    MATCH = 2  # in filters only: what applies to a resource of this name
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ANY = 1  # in filters only
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    ANY = 1  # in filters only
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str  # as "User:ann"
    host: str  # an address, a range of them as 10.0.0.0/8 (KIP-1276), or `ANYTHING`
    operation: AclOperation
    permission: Permission

    def covers(self, name: str) -> bool:
        """Whether a resource of this name, and of the entry's type, is meant."""
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANYTHING)

    def __str__(self) -> str:
        verb = "may" if self.permission == Permission.ALLOW else "may not"
        star = "*" if self.pattern_type == PatternType.PREFIXED else ""
        return (
            f"{self.principal} {verb} {self.operation.name} {self.resource_type.name} {self.name}{star}"
            f" from {'anywhere' if self.host == ANYTHING else self.host}"
        )


class AclFilter(NamedTuple):
    """What DescribeAcls and DeleteAcls ask for; None stands for anything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        return acl.covers(self.name) if self.pattern_type == PatternType.MATCH else acl.name == self.name
