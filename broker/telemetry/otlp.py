"""OpenTelemetry's MetricsData, read from its bytes.

Only what a client's metrics need of it: gauges, sums, and the sum and count of histograms. That is little enough to do
without one more package in every broker. Everything here is bounded: a message of a megabyte could hold a hundred
thousand points.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

POINTS_MAX: Final = 5_000  # of one message
NAME_MAX: Final = 200
ATTRIBUTES_MAX: Final = 10
VALUE_MAX: Final = 100
DELTA: Final = 1  # AggregationTemporality

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_View = memoryview


class InvalidTelemetry(ValueError):
    """It is not a message of MetricsData, or too large a one."""


class Point(NamedTuple):
    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool  # to be added to what was there


def points(data: memoryview) -> list[Point]:
    """Of all resources and scopes: clients have one of each. Raises InvalidTelemetry."""
    found: list[Point] = []
    try:
        for metric in _each(data, 1, 2, 2):  # resource_metrics, scope_metrics, metrics
            for point in _of_metric(metric):
                if len(found) == POINTS_MAX:
                    raise InvalidTelemetry(f"there are more than {POINTS_MAX} points")
                found.append(point)
    except struct.error as error:
        raise InvalidTelemetry(f"a number of another length: {error}") from None
    return found


def _each(view: _View, *path: int) -> Iterator[_View]:
    """The messages that lie at a path of fields."""
    for number, value in fields(view):
        if number == path[0] and isinstance(value, memoryview):
            if len(path) == 1:
                yield value
            else:
                yield from _each(value, *path[1:])


def _of_metric(view: _View) -> Iterator[Point]:
    name = ""
    data: tuple[int, _View] | None = None
    for number, value in fields(view):
        if number == 1 and isinstance(value, memoryview):
            name = _text(value, NAME_MAX)
        elif number in (5, 7, 9) and isinstance(value, memoryview):  # gauge, sum, histogram
            data = number, value
    if not name or data is None:
        return
    kind, body = data
    is_delta = any(number == 2 and value == DELTA for number, value in fields(body) if kind != 5)
    for point in _each(body, 1):
        yield from (_of_histogram if kind == 9 else _of_number)(name, point, is_delta)


def _of_number(name: str, view: _View, is_delta: bool) -> Iterator[Point]:
    value = math.nan
    attributes: list[tuple[str, str]] = []
    for number, found in fields(view):
        if number == 4 and isinstance(found, memoryview):  # as_double: eight bytes
            [value] = struct.unpack("<d", found)
        elif number == 6 and isinstance(found, memoryview):  # as_int
            [value] = struct.unpack("<q", found)
        elif number == 7 and isinstance(found, memoryview) and len(attributes) < ATTRIBUTES_MAX:
            attributes.append(_attribute(found))
    if math.isfinite(value):
        yield Point(name, tuple(sorted(attributes)), value, is_delta)


def _of_histogram(name: str, view: _View, is_delta: bool) -> Iterator[Point]:
    values: dict[str, float] = {}
    attributes: list[tuple[str, str]] = []
    for number, found in fields(view):
        if number == 4 and isinstance(found, memoryview):
            [values["count"]] = struct.unpack("<Q", found)
        elif number == 5 and isinstance(found, memoryview):
            [values["sum"]] = struct.unpack("<d", found)
        elif number == 9 and isinstance(found, memoryview) and len(attributes) < ATTRIBUTES_MAX:
            attributes.append(_attribute(found))
    for suffix, value in values.items():
        if math.isfinite(value):
            yield Point(f"{name}.{suffix}", tuple(sorted(attributes)), value, is_delta)


def _attribute(view: _View) -> tuple[str, str]:
    key = value = ""
    for number, found in fields(view):
        if not isinstance(found, memoryview):
            continue
        if number == 1:
            key = _text(found, VALUE_MAX)
        elif number == 2:
            value = _any_value(found)
    return key, value


def _any_value(view: _View) -> str:
    for number, found in fields(view):
        if number == 1 and isinstance(found, memoryview):
            return _text(found, VALUE_MAX)
        if number == 2:
            return "true" if found else "false"
        if number == 3 and isinstance(found, int):
            return str(found - (1 << 64) if found >> 63 else found)
        if number == 4 and isinstance(found, memoryview):
            return str(struct.unpack("<d", found)[0])
    return ""


def _text(view: _View, limit: int) -> str:
    """Longer ones are cut, rather than refused: names are the clients' choice."""
    return bytes(view[: 4 * limit]).decode(errors="replace")[:limit]


def fields(view: _View) -> Iterator[tuple[int, _View | int]]:
    """The fields of a message: numbers as they are, everything else as bytes. Raises InvalidTelemetry."""
    position, end = 0, len(view)
    while position < end:
        key, position = _varint(view, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(view, position)
            yield key >> 3, value
            continue
        if kind == _LEN:
            size, position = _varint(view, position)
        elif kind in (_I64, _I32):
            size = 8 if kind == _I64 else 4
        else:
            raise InvalidTelemetry(f"a field of wire type {kind}")
        if size > end - position:
            raise InvalidTelemetry(f"a field of {size} bytes, where {end - position} are left")
        yield key >> 3, view[position : position + size]
        position += size


def _varint(view: _View, position: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(position, min(position + 10, len(view))):
        byte = view[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
        shift += 7
    raise InvalidTelemetry("a number without an end")
