"""Records as JSON. A key or a value is JSON, a string, or bytes in base64; which of them is said beside it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidemark.broker.http.inputs import Fields, fail
from tidemark.protocol.records import Record

FORMATS: Final = ("json", "string", "binary")
ANY_FORMAT: Final = "auto"  # of what is read: JSON if it is that, else a string, else binary
TIMESTAMP_MAX: Final = 1 << 62


def record_of(value: object, *, now_ms: int, where: str) -> tuple[int | None, Record]:
    """The partition, if one is asked for, and the record."""
    fields = Fields(value, where=where)
    record = Record(
        timestamp=fields.integer("timestamp", default=now_ms, least=0, most=TIMESTAMP_MAX),
        key=_bytes_of(fields, "key", default="string"),
        value=_bytes_of(fields, "value", default="json"),
        headers=_headers_of(fields),
    )
    partition = fields.optional_integer("partition", least=0, most=(1 << 31) - 1)
    fields.refuse_others()
    return partition, record


def _bytes_of(fields: Fields, name: str, *, default: str) -> bytes | None:
    kind = fields.choice(f"{name}_format", FORMATS, default=default)
    value = fields.take(name)
    if value is None:
        return None
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    if not isinstance(value, str):
        raise fail(f"{fields.where}.{name}: it must be a string, as {name}_format is {kind}.")
    return _text(value, f"{fields.where}.{name}") if kind == "string" else _base64(value, f"{fields.where}.{name}")


def _text(value: str, where: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise fail(f"{where}: it holds half of a character.") from None


def _base64(value: str, where: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise fail(f"{where}: it is not base64.") from None


def _headers_of(fields: Fields) -> list[tuple[str, bytes | None]]:
    """An object of strings; or a list of name and value, where names repeat or values are bytes."""
    headers = fields.take("headers")
    where = f"{fields.where}.headers"
    if headers is None:
        return []
    if isinstance(headers, dict):
        return [(_name(name, where), _header_value(value, where)) for name, value in headers.items()]
    if not isinstance(headers, list):
        raise fail(f"{where}: it must be an object, or a list of objects with name and value.")
    found = []
    for number, each in enumerate(headers):
        header = Fields(each, where=f"{where}[{number}]")
        name = header.text("name")
        value = _bytes_of(header, "value", default="string")
        header.refuse_others()
        found.append((_name(name, where), value))
    return found


def _name(name: str, where: str) -> str:
    _text(name, where)
    return name


def _header_value(value: object, where: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise fail(f"{where}: values must be strings.")
    return _text(value, where)


# -- reading -----------------------------------------------------------------


def record_json(record: Record, *, partition: int, formats: Mapping[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
    _put(shown, "key", record.key, formats["key"])
    _put(shown, "value", record.value, formats["value"])
    if record.headers:
        shown["headers"] = [_header_json(name, value) for name, value in record.headers]
    return shown


def _header_json(name: str, value: bytes | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": name}
    _put(shown, "value", value, "text")
    return shown


def _put(shown: dict[str, Any], name: str, data: bytes | None, wanted: str) -> None:
    if data is None:
        shown[name] = None
        return
    for kind in _TRIED[wanted]:
        try:
            shown[name] = _DECODE[kind](data)
        except (ValueError, RecursionError):
            continue
        shown[f"{name}_format"] = kind
        return
    shown[name], shown[f"{name}_format"] = base64.b64encode(data).decode(), "binary"


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_DECODE: Final[dict[str, Callable[[bytes], object]]] = {
    "json": lambda data: json.loads(data.decode(), parse_constant=_refuse),
    "string": lambda data: data.decode(),
    "binary": lambda data: base64.b64encode(data).decode(),
}
# What is tried, in this order. Keys are seldom JSON: 17 is told as the string "17".
_TRIED: Final = {
    "auto": ("json", "string"),
    "text": ("string",),
    "json": ("json",),
    "string": ("string",),
    "binary": ("binary",),
}
