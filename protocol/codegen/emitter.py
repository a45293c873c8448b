"""What encoder and decoder share: a growing text, names that do not clash, and the wire sizes of primitive kinds."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from tidemark.protocol.schema import Field, fields_of

# Kinds of fixed size, by their struct codes. Consecutive ones travel in one pack or unpack call.
FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


ELEMENTS_PER_YIELD: Final = 32  # some 50 microseconds


class Emitter(ABC):
    """Writes the source of one function and compiles it."""

    def __init__(self, version: int, *, flexible: bool, in_slices: bool = False) -> None:
        """`in_slices`: the function is a generator, which yields now and then while it goes through arrays."""
        self.version = version
        self.flexible = flexible
        self.in_slices = in_slices
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"StructError": struct.error}
        self.count = 0
        self.layouts: dict[tuple[str, str], str] = {}

    @abstractmethod
    def compile(self, cls: type[Any]) -> Callable[..., Any]:
        """Write the function for `cls`, and make it."""

    def source(self) -> str:
        return "\n".join(self.lines) + "\n"

    def emit(self, depth: int, *lines: str) -> None:
        self.lines += ["  " * depth + line for line in lines]

    def emit_yield(self, depth: int) -> None:
        """At the end of an array's element."""
        if self.in_slices:
            self.emit(depth, "turn += 1", f"if turn == {ELEMENTS_PER_YIELD}:", "  turn = 0", "  yield")

    def emit_generator(self, depth: int) -> None:
        """At the beginning: a message without arrays yields nothing, and is a generator all the same."""
        if self.in_slices:
            self.emit(depth, "turn = 0", "if turn:", "  yield")

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def bind(self, hint: str, value: Any) -> str:
        name = self.name(hint)
        self.scope[name] = value
        return name

    def layout(self, codes: str, method: str) -> str:
        """The name under which the source calls `Struct('>' + codes).method`."""
        name = self.layouts.get((codes, method))
        if name is None:
            name = self.layouts[codes, method] = self.bind(method, getattr(struct.Struct(">" + codes), method))
        return name

    def length_code(self, field: Field) -> str:
        """The struct code of a length prefix; of a compact one, its first byte."""
        if self.flexible:
            return "B"
        return "h" if field.kind == "string" else "i"

    def split(self, cls: type[Any]) -> tuple[list[tuple[str, Field]], list[tuple[str, Field]]]:
        """The (plain, tagged) fields of `cls` that exist in this version."""
        here = [(name, field) for name, field in fields_of(cls).items() if self.version in field.versions]
        plain = [pair for pair in here if pair[1].tag is None]
        tagged = [pair for pair in here if pair[1].tag is not None]
        return plain, sorted(tagged, key=lambda pair: pair[1].tag or 0)

    def minimum(self, of: Any) -> int:
        """The fewest bytes that a value can take: what bounds the count of an array by what is left of the frame."""
        if isinstance(of, str):
            return self.minimum_of_field(Field(of, default=None))
        plain, _ = self.split(of)
        return sum(self.minimum_of_field(field) for _, field in plain) + self.flexible

    def minimum_of_field(self, field: Field) -> int:
        if field.kind in FIXED:
            return struct.calcsize(">" + FIXED[field.kind])
        if field.kind == "struct":
            return 1 if self.version in field.nullable else self.minimum(field.of)
        return struct.calcsize(">" + self.length_code(field))
