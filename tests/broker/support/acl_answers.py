"""An answer as what authorization decides of it: error codes, the names that are shown, and authorized operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemark.protocol.schema import fields_of

LABELS = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "transactional_id",
    "key",
    "resource_name",
    "user",
    "partition_index",
)
LABELS_MORE = ("index", "partition", "partition_id")
PASSED_OVER = ("brokers", "configs", "config_resources", "nodes", "unknown_state_filters", "replica_nodes", "members")


def digest(response: Any, *, version: int, topic_id: bytes = b"") -> list[str]:
    """In an order of its own, and without the broker's internal topics."""
    return sorted(line for line in _lines(response, "", version, topic_id) if "/__" not in line)


def _lines(message: Any, path: str, version: int, topic_id: bytes) -> Iterator[str]:
    fields = {name: field for name, field in fields_of(type(message)).items() if version in field.versions}
    if "throttle_time_ms" not in fields and "principal_name" in fields:  # a token in a list, and not the client's own
        path = f"{path}/{message.principal_name}"
        yield path
    label = next((str(getattr(message, name)) for name in (*LABELS, *LABELS_MORE) if name in fields), "")
    path = f"{path}/{label}" if label else path
    told = [f"{name}={int(getattr(message, name))}" for name in fields if name.endswith("error_code")]
    told += [f"{name}={getattr(message, name):#x}" for name in fields if name.endswith("authorized_operations")]
    told += [f"topic_id={_shown(message.topic_id, topic_id)}" for name in fields if name == "topic_id"]
    if told or label:
        yield f"{path}: {' '.join(told)}"
    for name, field in fields.items():
        if field.kind == "array" and not isinstance(field.of, str) and name not in PASSED_OVER:
            for each in getattr(message, name) or ():
                yield from _lines(each, path, version, topic_id)


def _shown(value: bytes, topic_id: bytes) -> str:
    return {bytes(16): "none", topic_id: "known"}.get(bytes(value), "other")
