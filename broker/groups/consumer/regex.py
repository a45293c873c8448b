"""Subscriptions by regular expression: RE2 syntax, matched against whole topic names, as Kafka does (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from tidemark.broker.core.errors import Refused
from tidemark.protocol.errors import ErrorCode

COMPILED_BYTES_MAX: Final = 1 << 20  # of one compiled expression
FOUND_BYTES_MAX: Final = 16 << 20  # of what is kept about expressions until topics change
REGEX_BYTES_MAX: Final = 64 << 10  # well over any pattern that people write


class Pattern(Protocol):
    """What we use of a compiled expression; RE2's own class has no types."""

    def fullmatch(self, text: str) -> object | None: ...


@lru_cache(maxsize=64)
def compiled(regex: str) -> Pattern:
    """RE2 matches in linear time whatever the pattern, so an expression cannot block the broker."""
    if len(regex) > REGEX_BYTES_MAX:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"The regular expression has {len(regex)} characters.")
    import re2  # type: ignore[import-untyped]  # imported on first use: most brokers never see an expression

    options = re2.Options()
    options.log_errors = False  # a client's mistake is answered, not written to our standard error
    options.never_capture = True
    options.max_mem = COMPILED_BYTES_MAX
    try:
        pattern: Pattern = re2.compile(regex, options)
        return pattern
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
        self._memo = _Memo({})

    def __call__(self, regex: str, topics: Mapping[str, Any]) -> frozenset[str]:
        memo = self._memo  # read once: another thread's broker, which has other topics, may replace it at any time
        if memo.topics is not topics or memo.bytes > FOUND_BYTES_MAX:
            memo = self._memo = _Memo(topics)
        found = memo.found.get(regex)
        if found is None:
            fullmatch = compiled(regex).fullmatch
            found = memo.found[regex] = frozenset(name for name in topics if fullmatch(name))
            memo.bytes += 4 * len(regex) + 64 * len(found)
        return found


class _Memo:
    __slots__ = ("bytes", "found", "topics")

    def __init__(self, topics: Mapping[str, Any]) -> None:
        self.topics = topics
        self.found: dict[str, frozenset[str]] = {}
        self.bytes = 0


matching: Final = TopicMatcher()  # a memo like any other: what it says depends on its arguments only
