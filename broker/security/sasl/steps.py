"""What a mechanism makes of a client's token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tidemark.broker.core.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The client has to say more."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    principal: Principal
    token: bytes = field(default=b"", repr=False)
    expires_at_ms: int | None = None  # when the credential itself ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """`run` comes to the step, and may take long: it belongs on a thread."""

    run: Callable[[], Challenge | Accepted]


Step: TypeAlias = Challenge | Accepted | Blocking


class AuthenticationFailed(Exception):
    """`reason` is for our log; `told` is all that the client hears, or None for the sentence that says nothing."""

    def __init__(self, reason: str, *, told: str | None = None, user: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told
        self.user = user


class ServerMechanism(Protocol):
    """One login. May raise AuthenticationFailed."""

    def evaluate(self, token: bytes) -> Step: ...
