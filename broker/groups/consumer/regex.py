"""Subscriptions by regular expression: RE2 syntax, matched against whole topic names, as Kafka does (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from tidemark.broker.core.errors import Refused
from tidemark.protocol.errors import ErrorCode

REGEX_BYTES_MAX: Final = 64 << 10  # well over any pattern that people write


@lru_cache(maxsize=256)
def compiled(regex: str) -> Any:
    """RE2 matches in linear time whatever the pattern, so an expression cannot block the broker."""
    if len(regex) > REGEX_BYTES_MAX:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"The regular expression has {len(regex)} characters.")
    import re2  # type: ignore[import-untyped]  # imported on first use: most brokers never see an expression

    options = re2.Options()
    options.log_errors = False  # a client's mistake is answered, not written to our standard error
    options.never_capture = True
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be compiled"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}.",
        ) from None


class TopicMatcher:
    """Which topics each expression names; groups with the same expression share the work of one metadata change."""

    def __init__(self) -> None:
        self._topics: Mapping[str, Any] = {}
        self._found: dict[str, frozenset[str]] = {}

    def __call__(self, regex: str, topics: Mapping[str, Any]) -> frozenset[str]:
        if topics is not self._topics:
            self._topics, self._found = topics, {}
        found = self._found.get(regex)
        if found is None:
            fullmatch = compiled(regex).fullmatch
            found = self._found[regex] = frozenset(name for name in topics if fullmatch(name))
        return found


matching: Final = TopicMatcher()  # a memo like any other: what it says depends on its arguments only
