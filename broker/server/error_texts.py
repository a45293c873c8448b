"""Texts in an answer that may quote what a client sent, which can be longer than an answer's strings may be."""

from __future__ import annotations

from typing import Any

from tidemark.broker.core.errors import ERROR_TEXT_MAX, clipped
from tidemark.protocol.schema import fields_of


def clip_error_texts(message: Any) -> bool:
    """Shorten every `…error_message` in it, however deep. Whether there was one to shorten."""
    found = False
    for name, field in fields_of(type(message)).items():
        value = getattr(message, name)
        if field.kind == "struct" and value is not None:
            found |= clip_error_texts(value)
        elif field.kind == "array" and not isinstance(field.of, str):
            for each in value or ():
                found |= clip_error_texts(each)
        elif name.endswith("error_message") and isinstance(value, str) and len(value) > ERROR_TEXT_MAX:
            setattr(message, name, clipped(value))
            found = True
    return found
