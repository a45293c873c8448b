"""Letting go of large messages: freeing half a million objects at once takes as long as dozens of requests."""

from __future__ import annotations

from typing import Any, Final

from tidemark.broker.core.sliced_work import Job
from tidemark.protocol.codegen.emitter import FIXED
from tidemark.protocol.schema import Struct, fields_of

FREED_AT_ONCE: Final = 500
PLENTY: Final = 1000  # elements of an array: fewer are freed with their message


_known: dict[type[Any], tuple[str, ...]] = {}


def _arrays(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a message whose elements are objects of their own."""
    if cls not in _known:
        fields = fields_of(cls).items()
        _known[cls] = tuple(name for name, field in fields if field.kind == "array" and field.of not in FIXED)
    return _known[cls]


def hold_elements(message: Any, held: list[Any]) -> Job[None]:
    """Hold the elements of a message's large arrays, so that they do not go with it, all at once."""
    if not isinstance(message, Struct):
        return
    for name in _arrays(type(message)):
        elements = getattr(message, name)
        if not elements:
            continue
        if len(elements) >= PLENTY:
            held += elements
        if isinstance(elements[0], Struct) and _arrays(type(elements[0])):
            for count, element in enumerate(elements):
                yield from hold_elements(element, held)
                if count % 64 == 63:
                    yield


def free_slowly(held: list[Any]) -> Job[None]:
    while held:
        del held[-FREED_AT_ONCE:]
        yield
