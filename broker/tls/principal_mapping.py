"""`ssl.principal.mapping.rules`: from the distinguished name of a client's certificate to its principal (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tidemark.broker.config import ConfigError

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\n|$)")
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}

Rule = Callable[[str], str | None]


class NoRuleMatches(Exception):
    """The rules have no name for this client."""


class PrincipalMapping:
    def __init__(self, text: str) -> None:
        """Raises ConfigError."""
        self._rules = list(_parse(text))

    def name_of(self, distinguished_name: str) -> str:
        """Raises NoRuleMatches."""
        for rule in self._rules:
            if (name := rule(distinguished_name)) is not None:
                return name
        raise NoRuleMatches(f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}")


def _parse(text: str) -> list[Rule]:
    rules: list[Rule] = []
    at = 0
    while at < len(text.rstrip()):
        match = _RULE.match(text, at)
        if match is None:
            raise _refusal(text, f"{text[at:]!r} is not allowed; it must be DEFAULT or RULE:pattern/replacement/[LU]")
        rules.append(str if match[1] else _rule(text, match[2], match[3], _CASES[match[4]]))
        at = match.end()
    return rules or [str]


def _rule(text: str, pattern: str, replacement: str, case: Callable[[str], str]) -> Rule:
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
        template = _template(replacement, groups=compiled.groups)
    except re.error as error:
        raise _refusal(text, f"{pattern!r} is not a regular expression: {error}") from None

    def apply(name: str) -> str | None:
        return case(compiled.sub(template, name)) if compiled.fullmatch(name) else None

    return apply


def _template(replacement: str, *, groups: int) -> Callable[[re.Match[str]], str]:
    """Java's notation: $1 is a group, if there are so many, and a backslash makes the next character plain."""
    parts = re.findall(r"\\(.)|\$(\d)|(.)", replacement, re.DOTALL)

    def filled(match: re.Match[str]) -> str:
        return "".join(_filled(match, *each) for each in parts)

    def _filled(match: re.Match[str], escaped: str, group: str, plain: str) -> str:
        if group:
            return (match[int(group)] or "") if int(group) <= groups else f"${group}"
        return escaped or plain

    return filled


def _refusal(text: str, reason: str) -> ConfigError:
    return ConfigError(f"ssl.principal.mapping.rules: {reason}.", key="ssl.principal.mapping.rules", value=text)
