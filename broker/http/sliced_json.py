"""JSON that is too long to be read or written at once: in slices, between which others have their turn.

The standard library's scanner is fast, and holds the interpreter until it is done: a body of two megabytes may take it
200 ms, on whichever thread. Here it gets a window of the text at a time. An array or object that ends within the window
is read by it; one that does not is taken apart here, member by member, and each of these is tried in turn.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from json.decoder import JSONDecodeError
from typing import Any, Final, NoReturn

from tidemark.broker.core.sliced_work import Job

WINDOW_CHARS: Final = 16 << 10
BRACKETS_MAX: Final = 1_000  # in a window: a text of little else would become thousands of objects at once
SAMPLED: Final = 61  # one character in so many is looked at for that
# Of arrays and objects that are longer than a window. Each of them costs a window that is read in vain.
DEPTH_MAX: Final = 16
NODES_MAX: Final = 2_000  # members that are written at once
_SPACE: Final = re.compile(r"[ \t\n\r]*")

Scan = Callable[[str, int], tuple[Any, int]]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def text_of(data: bytes) -> str:
    """In whichever encoding of Unicode it is, as `json.loads` finds out. Raises ValueError."""
    return data.decode(json.detect_encoding(data), "surrogatepass")


def parsed(text: str) -> Job[object]:
    """What the text says. Raises ValueError or RecursionError, as `json.loads` does."""
    if len(text) <= WINDOW_CHARS:
        return DECODER.decode(text)
    reader = _Reader(text)
    value, at = yield from reader.value(reader.after_space(0), 0)
    if reader.after_space(at) != len(text):
        raise JSONDecodeError("Extra data", text, at)
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._scan: Scan = DECODER.scan_once  # type: ignore[attr-defined]  # there since 2.6, and in no stub
        self._window = ""
        self._start = 0  # of the window

    def value(self, at: int, depth: int) -> Generator[None, None, tuple[Any, int]]:
        """A value, and where it ends."""
        found = self._at_once(at)
        if found is not None:
            return found
        if depth == DEPTH_MAX:
            raise ValueError(f"values over {WINDOW_CHARS} characters are nested more than {DEPTH_MAX} deep")
        return (yield from (self._array(at, depth) if self._text[at] == "[" else self._object(at, depth)))

    def _at_once(self, at: int) -> tuple[Any, int] | None:
        """If it is short enough."""
        if self._char(at) not in "[{":
            try:
                return self._scan(self._text, at)  # a string, a number or a word: as fast as it is copied
            except StopIteration:
                raise JSONDecodeError("Expecting value", self._text, at) from None
        inside = at - self._start
        # What is cut off has no closing bracket: it is never taken for something shorter.
        if 0 <= inside < len(self._window):
            found = self._in_window(inside)
            if found is not None or inside == 0 or self._start + len(self._window) == len(self._text):
                return found
        self._start, self._window = at, self._text[at : at + WINDOW_CHARS]
        return self._in_window(0)

    def _in_window(self, inside: int) -> tuple[Any, int] | None:
        try:
            value, end = self._scan(self._window, inside)
        except (ValueError, StopIteration):
            return None
        return value, self._start + end

    def _array(self, at: int, depth: int) -> Generator[None, None, tuple[list[Any], int]]:
        found: list[Any] = []
        at = self.after_space(at + 1)
        if self._char(at) == "]":
            return found, at + 1
        some: tuple[Any, int] | None = found, at
        while True:
            some = self._several(at, "[", "]") if some is not None else None
            if some is not None:
                found += some[0]
                at = some[1]
            else:
                each = self._at_once(at)
                value, at = (yield from self.value(at, depth + 1)) if each is None else each
                found.append(value)
            yield
            at = self.after_space(at)
            if self._ends(at, "]"):
                return found, at + 1
            at = self.after_space(at + 1)

    def _object(self, at: int, depth: int) -> Generator[None, None, tuple[dict[str, Any], int]]:
        found: dict[str, Any] = {}
        at = self.after_space(at + 1)
        if self._char(at) == "}":
            return found, at + 1
        some: tuple[Any, int] | None = found, at
        while True:
            some = self._several(at, "{", "}") if some is not None else None
            if some is not None:
                found |= some[0]
                at = some[1]
            else:
                name, at = self._name(at)
                each = self._at_once(at)
                found[name], at = (yield from self.value(at, depth + 1)) if each is None else each
            yield
            at = self.after_space(at)
            if self._ends(at, "}"):
                return found, at + 1
            at = self.after_space(at + 1)

    def _name(self, at: int) -> tuple[str, int]:
        """Of an object's member, and where its value begins."""
        if self._char(at) != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", self._text, at)
        name, at = self._scan(self._text, at)
        at = self.after_space(at)
        if self._char(at) != ":":
            raise JSONDecodeError("Expecting ':' delimiter", self._text, at)
        return name, self.after_space(at + 1)

    def _several(self, at: int, opening: str, closing: str) -> tuple[Any, int] | None:
        """The members of an array or object that begin here and end within a window, and the place of the comma behind
        them. None: they are not found that easily."""
        window = self._text[at : at + WINDOW_CHARS]
        sample = window[::SAMPLED]
        brackets = SAMPLED * (sample.count("[") + sample.count("{"))
        if brackets > BRACKETS_MAX:
            part = window[: len(window) * BRACKETS_MAX // brackets]
            if (found := self._several_of(part, at, opening, closing)) is not None:
                return found
        return self._several_of(window, at, opening, closing)

    def _several_of(self, window: str, at: int, opening: str, closing: str) -> tuple[Any, int] | None:
        for mark in ("},", "],", ","):
            end = window.rfind(mark) + len(mark) - 1
            if end < len(mark):
                continue
            # A comma within a member leaves that without its end, and one behind the last member leaves something over.
            with contextlib.suppress(ValueError, StopIteration):
                found, read = self._scan(f"{opening}{window[:end]}{closing}", 0)
                if read == end + 2:
                    return found, at + end
        return None

    def _ends(self, at: int, closing: str) -> bool:
        char = self._char(at)
        if char not in (",", closing):
            raise JSONDecodeError("Expecting ',' delimiter", self._text, at)
        return char == closing

    def _char(self, at: int) -> str:
        if at >= len(self._text):
            raise JSONDecodeError("Expecting value", self._text, at)
        return self._text[at]

    def after_space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None  # it may be empty
        return found.end()


# -- writing -----------------------------------------------------------------


def written(value: object) -> Job[str]:
    """The value as JSON, as short as it can be. Raises ValueError or RecursionError, as `json.dumps` does."""
    if not isinstance(value, (dict, list)) or not is_long(value):
        return ENCODER.encode(value)
    if isinstance(value, dict):
        return "{" + (yield from _joined(value.items(), _object_text, _member)) + "}"
    assert isinstance(value, list)
    return "[" + (yield from _joined(value, _array_text, written)) + "]"


def _joined(
    members: Iterable[Any], together: Callable[[list[Any]], str], one: Callable[[Any], Job[str]]
) -> Generator[None, None, str]:
    parts = []
    left = iter(members)
    while some := list(islice(left, NODES_MAX // 2)):
        if is_long(some):
            for each in some:
                parts.append((yield from one(each)))
                yield
        else:
            parts.append(together(some))
            yield
    return ",".join(parts)


def _array_text(values: list[Any]) -> str:
    return ENCODER.encode(values)[1:-1]


def _object_text(members: list[tuple[Any, Any]]) -> str:
    return ENCODER.encode(dict(members))[1:-1]


def _member(member: tuple[Any, Any]) -> Job[str]:
    name, value = member
    return ENCODER.encode({name: None})[1:-5] + (yield from written(value))


def is_long(value: object) -> bool:
    """Whether it has more members, at whatever depth, than are written at once."""
    left, open_ = NODES_MAX, [value]
    while open_:
        each = open_.pop()
        if not isinstance(each, (dict, list, tuple)):
            continue
        left -= len(each)
        if left < 0:
            return True
        open_.extend(each.values() if isinstance(each, dict) else each)
    return False
