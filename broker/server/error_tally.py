"""Which errors an answer holds. Where a response has its error codes is known from its declaration, once per API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tidemark.protocol.schema import fields_of

CountErrors = Callable[[Any, Counter[int]], None]


def count_errors(response: type[Any]) -> CountErrors | None:
    """A function that counts the error codes of a response of this type; None if it has no place for any."""
    has_code = "error_code" in fields_of(response)
    nested = [
        (name, inner)
        for name, field in fields_of(response).items()
        if field.kind == "array" and isinstance(field.of, type) and (inner := count_errors(field.of)) is not None
    ]
    if not has_code and not nested:
        return None

    def count(answer: Any, errors: Counter[int]) -> None:
        if has_code and answer.error_code:
            errors[answer.error_code] += 1
        for name, inner in nested:
            for element in getattr(answer, name) or ():
                inner(element, errors)

    return count
