"""What a client may do, as the bit sets that Metadata and the Describe APIs carry: everything, so far."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

NO_AUTHORIZER: Final = "No authorizer is configured on this broker."


class Operation(IntEnum):
    """Kafka's ACL operations."""

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


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
GROUP_OPERATIONS: Final = _bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)
