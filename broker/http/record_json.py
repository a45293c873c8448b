"""Records as JSON. A key or a value is JSON, a string, or bytes in base64; which of them is said beside it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Final

from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.http.inputs import Fields, fail
from tidemark.broker.http.sliced_json import DECODER, ENCODER, WINDOW_CHARS, is_long, parsed, written
from tidemark.protocol.records import HEADERS_AT_ONCE, Record

FORMATS: Final = ("json", "string", "binary")
ANY_FORMAT: Final = "auto"  # of what is read: JSON if it is that, else a string, else binary
CHECKED_JSON: Final = "checked"  # it is known to be JSON
TIMESTAMP_MAX: Final = 1 << 62
_SIMPLE: Final = {"key", "value"}
_PLAIN: Final = bytes(byte for byte in range(0x20, 0x100) if byte not in b'"\\')  # what JSON does not escape
_LONG_TEXT: Final = 64  # bytes, from which on it is worth a look whether there is something to escape
HEADERS_MAX: Final = 1_000  # of a record that is produced here


def simple_record(value: object, *, now_ms: int) -> Record | None:
    """A record with a key that is a string, or none, and a value that is JSON: nearly all are like that. None: it has
    more, or something is wrong with it, which `record_of` says."""
    if type(value) is not dict or not value.keys() <= _SIMPLE:
        return None
    key, data = value.get("key"), value.get("value")
    if not (key is None or type(key) is str):
        return None
    try:
        if type(data) is str:
            told: bytes | None = _quoted(data)
        elif is_long(data):
            return None
        else:
            told = None if data is None else ENCODER.encode(data).encode()
        return Record(timestamp=now_ms, key=None if key is None else key.encode(), value=told)
    except (ValueError, RecursionError):
        return None


def _quoted(text: str) -> bytes:
    """A string as JSON. Python's encoder looks at one character after the other, whether or not it has to."""
    data = text.encode()
    if len(data) > _LONG_TEXT and not data.translate(None, _PLAIN):
        return b'"%b"' % data
    return encode_basestring(text).encode()


def record_of(value: object, *, now_ms: int, where: str) -> Job[tuple[int | None, Record]]:
    """The partition, if one is asked for, and the record."""
    fields = Fields(value, where=where)
    timestamp = fields.optional_integer("timestamp", least=0, most=TIMESTAMP_MAX, null=True)
    record = Record(
        timestamp=now_ms if timestamp is None else timestamp,
        key=(yield from _bytes_of(fields, "key", default="string")),
        value=(yield from _bytes_of(fields, "value", default="json")),
        headers=(yield from _headers_of(fields)),
    )
    partition = fields.optional_integer("partition", least=0, most=(1 << 31) - 1, null=True)
    fields.refuse_others()
    return partition, record


def _bytes_of(fields: Fields, name: str, *, default: str) -> Job[bytes | None]:
    kind = fields.choice(f"{name}_format", FORMATS, default=default)
    value = fields.take(name)
    if value is None:
        return None
    if kind == "json":
        return (yield from _json_bytes(value, f"{fields.where}.{name}"))
    if not isinstance(value, str):
        raise fail(f"{fields.where}.{name}: it must be a string, as {name}_format is {kind}.")
    return _text(value, f"{fields.where}.{name}") if kind == "string" else _base64(value, f"{fields.where}.{name}")


def _json_bytes(value: object, where: str) -> Job[bytes]:
    try:
        return (yield from written(value)).encode()
    except UnicodeEncodeError:
        raise fail(f"{where}: it holds half of a character.") from None
    except ValueError:  # 1e999 is JSON, and infinite when it is read
        raise fail(f"{where}: it holds a number that is too large.") from None
    except RecursionError:
        raise fail(f"{where}: it is nested too deeply.") from None


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


def _headers_of(fields: Fields) -> Job[Sequence[tuple[str, bytes | None]]]:
    """An object of strings; or a list of name and value, where names repeat or values are bytes."""
    headers = fields.take("headers")
    where = f"{fields.where}.headers"
    if headers is None:
        return ()
    if not isinstance(headers, (dict, list)):
        raise fail(f"{where}: it must be an object, or a list of objects with name and value.")
    if len(headers) > HEADERS_MAX:
        raise fail(f"{where}: it must not have more than {HEADERS_MAX}.")
    if isinstance(headers, dict):
        return [(_name(name, where), _header_value(value, where)) for name, value in headers.items()]
    found = []
    for number, each in enumerate(headers):
        header = Fields(each, where=f"{where}[{number}]")
        name = header.text("name")
        value = yield from _bytes_of(header, "value", default="string")
        header.refuse_others()
        found.append((_name(name, where), value))
        yield
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


def record_text(record: Record, *, topic: str | None = None, partition: int, formats: Mapping[str, str]) -> Job[str]:
    """A record as JSON, in one line. A value that is JSON is told as it was written, to the last digit."""
    named = "" if topic is None else f'"topic":{encode_basestring(topic)},'
    told = f'{{{named}"partition":{partition},"offset":{record.offset},"timestamp":{record.timestamp}'
    for name, data in (("key", record.key), ("value", record.value)):
        is_long = data is not None and len(data) > WINDOW_CHARS
        told += _field(name, data, (yield from _fitting(data, formats[name])) if is_long else formats[name])
    if len(record.headers) > HEADERS_AT_ONCE:
        told += f',"headers":[{",".join((yield from in_slices(_header_text, record.headers)))}]'
    elif record.headers:
        told += f',"headers":[{",".join(map(_header_text, record.headers))}]'
    return told + "}"


def _header_text(header: tuple[str, bytes | None]) -> str:
    return f'{{"name":{encode_basestring(header[0])}{_field("value", header[1], "text")}}}'


def _fitting(data: bytes | None, wanted: str) -> Job[str]:
    """What long data is told as: whether it is JSON takes a while to find out."""
    if "json" not in _TRIED[wanted] or data is None:
        return wanted
    try:
        yield from parsed(data.decode())
    except (ValueError, RecursionError):
        return "string" if wanted == ANY_FORMAT else "binary"
    return CHECKED_JSON


def _field(name: str, data: bytes | None, wanted: str) -> str:
    if data is None:
        return f',"{name}":null'
    for kind in _TRIED[wanted]:
        try:
            return f',"{name}":{_TELL[kind](data)},"{name}_format":"{_NAMES.get(kind, kind)}"'
        except (ValueError, RecursionError):
            continue
    return f',"{name}":{_binary(data)},"{name}_format":"binary"'


def _json(data: bytes) -> str:
    DECODER.decode(data.decode())
    return _checked_json(data)


def _checked_json(data: bytes) -> str:
    text = data.decode()
    # In a JSON text these are but white space; and a record is one line of a stream.
    return text.replace("\n", " ").replace("\r", " ") if "\n" in text or "\r" in text else text


def _string(data: bytes) -> str:
    if len(data) > _LONG_TEXT and not data.translate(None, _PLAIN):
        return f'"{data.decode()}"'
    return encode_basestring(data.decode())


def _binary(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


_TELL: Final[dict[str, Callable[[bytes], str]]] = {
    "json": _json,
    CHECKED_JSON: _checked_json,
    "string": _string,
    "binary": _binary,
}
_NAMES: Final = {CHECKED_JSON: "json"}
# What is tried, in this order. Keys are seldom JSON: 17 is told as the string "17".
_TRIED: Final = {
    "auto": ("json", "string"),
    "text": ("string",),
    "json": ("json",),
    CHECKED_JSON: (CHECKED_JSON,),
    "string": ("string",),
    "binary": ("binary",),
}
