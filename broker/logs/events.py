"""What an event in the log is about, beside its text.

A line about a connection or a request says so itself (`extra=about(…)`). Other lines say it in the words of their
templates, which mean the same everywhere: `%s-%d` is a topic and a partition, `group %s` a group, `broker %d` a broker.
"""

from __future__ import annotations

import codecs
import logging
import re
from functools import lru_cache
from typing import Any, Final

FIELDS: Final = "about"  # the attribute of a LogRecord
TEXT_MAX: Final = 8_000  # characters: clients choose names, and errors repeat what they sent
VALUE_MAX: Final = 300
WORDS: Final = (
    (re.compile(r"%s-%d\b"), ("topic", "partition")),
    (re.compile(r"\bgroup %s"), ("group",)),
    (re.compile(r"\bbroker %d"), ("broker",)),
)
# Loaded now: the line that says that no file can be opened any more could not be written otherwise.
_escape: Final = codecs.getencoder("unicode_escape")
_DIRECTIVE: Final = re.compile(r"%(?!%)")
_PERCENT: Final = "%%"


def about(**fields: Any) -> dict[str, dict[str, Any]]:
    """For `extra=` of a log call. What is None is left out."""
    return {FIELDS: {name: value for name, value in fields.items() if value is not None}}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = dict(getattr(record, FIELDS, ()))
    values = record.args
    if isinstance(values, tuple) and isinstance(record.msg, str):
        for name, position in _named(record.msg):
            if position < len(values):
                fields.setdefault(name, values[position])
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float) else clipped(str(value), VALUE_MAX)


def text_of(record: logging.LogRecord) -> str:
    return clipped(record.getMessage(), TEXT_MAX)


def clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def printable(text: str) -> str:
    """In one line, and without what moves a terminal's cursor: nobody outside writes lines of their own."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each)[0].decode() for each in text)


@lru_cache(maxsize=1_000)
def _named(template: str) -> list[tuple[str, int]]:
    """Names, and which of the arguments each is."""
    found: list[tuple[str, int]] = []
    for words, names in WORDS:
        if (match := words.search(template)) is not None:
            before = template[: match.start() + match.group().index("%")].replace(_PERCENT, "")
            first = len(_DIRECTIVE.findall(before))
            found += [(name, first + number) for number, name in enumerate(names)]
    return found
