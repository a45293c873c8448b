"""Subscriptions by regular expression: RE2 syntax, matched against whole topic names, as Kafka does (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import Job, gathered
from tidemark.protocol.errors import ErrorCode

COMPILED_BYTES_MAX: Final = 1 << 20  # of one compiled expression
FOUND_BYTES_MAX: Final = 16 << 20  # of what is kept about expressions until topics change
REGEX_BYTES_MAX: Final = 64 << 10  # well over any pattern that people write

T = TypeVar("T")


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
        found = self._known(regex, topics)
        return self._remember(regex, topics, _matches(regex, topics)) if found is None else found

    def unknown(self, regexes: Iterable[str], topics: Mapping[str, Any]) -> list[str]:
        """Those that a call would have to evaluate."""
        return [each for each in regexes if self._known(each, topics) is None]

    def evaluate(self, regexes: Iterable[str], topics: Mapping[str, Any]) -> Job[None]:
        """So that a call need not: linear time is long for many topics, long names and an expression made for it (2 ms
        for each name)."""
        for regex in regexes:
            try:
                found = yield from gathered(_matches(regex, topics))
            except Refused:
                continue  # whoever brought it hears of it
            self._remember(regex, topics, found)

    def _known(self, regex: str, topics: Mapping[str, Any]) -> frozenset[str] | None:
        memo = self._memo  # read once: another thread's broker, which has other topics, may replace it at any time
        return memo.found.get(regex) if memo.topics is topics else None

    def _remember(self, regex: str, topics: Mapping[str, Any], found: Iterable[str | None]) -> frozenset[str]:
        names = frozenset(name for name in found if name is not None)
        memo = self._memo
        if memo.topics is not topics or memo.bytes > FOUND_BYTES_MAX:
            memo = self._memo = _Memo(topics)
        memo.found[regex] = names
        memo.bytes += 4 * len(regex) + 64 * len(names)
        return names


def _matches(regex: str, topics: Mapping[str, Any]) -> Iterator[str | None]:
    """Each name that the expression matches, and None for each that it does not."""
    fullmatch = compiled(regex).fullmatch
    for name in topics:
        yield name if fullmatch(name) else None


class _Memo:
    __slots__ = ("bytes", "found", "topics")

    def __init__(self, topics: Mapping[str, Any]) -> None:
        self.topics = topics
        self.found: dict[str, frozenset[str]] = {}
        self.bytes = 0


def after_evaluation(regexes: Iterable[str], topics: Mapping[str, Any], go_on: Callable[[], T]) -> Job[T]:
    """What rests on expressions, when they are evaluated."""
    yield from matching.evaluate(regexes, topics)
    return go_on()


matching: Final = TopicMatcher()  # a memo like any other: what it says depends on its arguments only
