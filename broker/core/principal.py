"""The user that a request comes from: `User:ANONYMOUS` without authentication."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    type: str
    name: str
    # Who logged in by a delegation token is its owner, but gets no further token (KIP-48).
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


def principal_of(text: str) -> Principal:
    """From `Type:name`."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
