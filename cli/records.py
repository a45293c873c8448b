"""Records as lines: plain text with an optional key, or one JSON object a line.

The JSON form is the same both ways, so that `tidemark consume --json | tidemark produce --json` copies records. Bytes
that are not UTF-8 travel as `key_base64` and `value_base64`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Header = tuple[str, bytes | None]


class BadLineError(ValueError):
    """An input line that is not a record; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to produce. None is Kafka's null; partition and timestamp are chosen for it where they are None."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def from_text(line: bytes, *, delimiter: bytes | None, empty_is_null: bool) -> Record:
    """A line as `value`, or as `key<delimiter>value`; a line without the delimiter has no key."""
    key: bytes | None = None
    value: bytes | None = line
    if delimiter is not None and delimiter in line:
        key, _, value = line.partition(delimiter)
    if empty_is_null:
        key, value = key or None, value or None
    return Record(key=key, value=value)


def from_json(line: bytes) -> Record:
    """A line as a JSON object with any of key, value, headers, partition and timestamp."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadLineError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadLineError("not a JSON object")
    return Record(
        key=_bytes_of(fields, "key"),
        value=_bytes_of(fields, "value"),
        headers=_headers_of(fields.get("headers")),
        partition=_whole_number(fields, "partition"),
        timestamp=_whole_number(fields, "timestamp"),
    )


def to_json(
    *,
    topic: str,
    partition: int,
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> str:
    fields: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp}
    fields |= shown("key", key) | shown("value", value)
    fields["headers"] = [{"name": name, **shown("value", content)} for name, content in headers]
    return json.dumps(fields, ensure_ascii=False)


def to_text(
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    delimiter: bytes | None,
    null: bytes,
    show_headers: bool,
) -> bytes:
    parts = []
    if show_headers:
        parts.append(b",".join(name.encode() + b"=" + _or(content, null) for name, content in headers))
    if delimiter is not None:
        parts.append(_or(key, null))
    parts.append(_or(value, null))
    return (b"\t" if delimiter is None else delimiter).join(parts)


def _or(content: bytes | None, null: bytes) -> bytes:
    return null if content is None else content


def shown(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise BadLineError(f"{name}_base64 is not base64") from None
    content = fields.get(name)
    if content is None:
        return None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _headers_of(value: Any) -> tuple[Header, ...]:
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((name, _bytes_of({"value": content}, "value")) for name, content in value.items())
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value):
        return tuple((item["name"], _bytes_of(item, "value")) for item in value)
    raise BadLineError('headers must be {"name": "value"} or [{"name": …, "value": …}]')


def _whole_number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise BadLineError(f"{name} is not a whole number")
