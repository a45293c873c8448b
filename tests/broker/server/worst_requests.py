"""The largest request of every API, made from its declaration: an API that is new is in the catalogue already.

Each has very many elements, once in its outermost arrays and once in those within them. Names of topics are those of a
topic that exists, where that makes more work; what is to be created or deleted has ever new names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidemark.broker.core.api_table import served_on
from tidemark.broker.core.registry import find_route
from tidemark.protocol.schema import Field, api, fields_of

TOPIC: Final = "wide"
TOPIC_FIELDS: Final = ("topic", "topic_name")
# Values that make a request get further than its first check. (API, field) goes before the field alone.
VALUES: Final[dict[str | tuple[str, str], Any]] = {
    "acks": -1,
    "auto_commit": True,
    "broker_epoch": -1,
    "broker_id": 99,  # not this one, which should not unregister itself
    "cluster_id": None,
    "generation_id": -1,
    "group_id": "g",
    "member_epoch": 0,
    "member_id": "",
    "num_partitions": 1,
    "producer_epoch": 0,
    "producer_id": 1,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "session_timeout_ms": 10_000,
    "timeout_ms": 1_000,
    "transactional_id": "t",
    "validate_only": True,
    ("Fetch", "max_bytes"): 1 << 20,
    ("ListOffsets", "timestamp"): 1,
    ("Metadata", "allow_auto_topic_creation"): False,
    ("DescribeTopicPartitions", "response_partition_limit"): 1_000_000,
    ("FindCoordinator", "key_type"): 0,
    ("DescribeConfigs", "configuration_keys"): None,
    ("AddRaftVoter", "voter_id"): 99,
    ("RemoveRaftVoter", "voter_id"): 99,
}
PRIMITIVE: Final[dict[str, Any]] = {"bool": False, "string": "x", "bytes": b"", "records": b"", "uuid": bytes(16)}


class Largest:
    """A request of one version with `count` elements, `depth` arrays down."""

    def __init__(self, name: str, version: int, *, count: int, depth: int) -> None:
        self.name = name
        self.version = version
        self.count = count
        self.depth = depth
        self.reached = False  # whether there was an array so far down

    def make(self, cls: type[Any], level: int = 0, index: int = 0) -> Any:
        made = cls()
        for name, field in fields_of(cls).items():
            if self.version in field.versions and field.tag is None:
                setattr(made, name, self._value(name, field, level, index))
        return made

    def _value(self, name: str, field: Field, level: int, index: int) -> Any:
        if (self.name, name) in VALUES or (name in VALUES and field.kind != "array"):
            return VALUES.get((self.name, name), VALUES.get(name))
        if field.kind == "array":
            return self._array(name, field, level)
        if field.kind == "struct":
            return None if self.version in field.nullable else self.make(field.of, level, index)
        if field.kind == "string":
            return TOPIC if name in TOPIC_FIELDS or (name == "name" and self.depth > 1) else f"{name}.{index}"
        if "partition" in name and field.kind == "int32":
            return index
        return PRIMITIVE.get(field.kind, 0)

    def _array(self, name: str, field: Field, level: int) -> list[Any]:
        at_depth = level + 1 == self.depth
        self.reached |= at_depth
        count = self.count if at_depth else 1 if level + 1 < self.depth else 0
        if isinstance(field.of, str):
            return [self._value(name, Field(field.of, default=None), level + 1, index) for index in range(count)]
        return [self.make(field.of, level + 1, index) for index in range(count)]


def largest_requests(*, count: int) -> Iterator[tuple[str, Any, int]]:
    """(title, request, version) of every API that clients are served."""
    for key in sorted(served_on("broker")):
        route = find_route(key)
        assert route is not None
        version = route.versions.last
        yield (
            f"{route.name}, as small as can be",
            Largest(route.name, version, count=0, depth=0).make(route.request),
            version,
        )
        for depth in (1, 2, 3):
            largest = Largest(route.name, version, count=count, depth=depth)
            request = largest.make(route.request)
            if largest.reached:
                yield f"{route.name}, {count} elements {depth} down", request, version


def key_of(request: Any) -> int:
    return api(type(request)).key
