"""Deciding about delegation tokens (KIP-48): an image, a principal and the time in; a record, or a refusal, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import ANONYMOUS, Principal
from tidemark.broker.metadata.credentials import TokenImage
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record, RemoveDelegationTokenRecord
from tidemark.protocol.errors import ErrorCode

USER_TYPE: Final = "User"
# Whoever can log in may ask for tokens, without any right: so what they make every node remember is bounded.
TOKENS_MAX: Final = 1_000  # that one principal has asked for, and that have not ended
RENEWERS_MAX: Final = 100
NAME_CHARS_MAX: Final = 1_000  # of an owner's or a renewer's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    max_ms: int
    expiry_ms: int


def check_may_ask(principal: Principal) -> None:
    """No token from a token, and none for those who did not log in."""
    if principal.token_authenticated or principal == ANONYMOUS:
        message = "Tokens are given to those who logged in, and not by a token."
        raise Refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, message)


def new_token(
    token_id: str,
    *,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    max_lifetime_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> TokenImage:
    if any(each.type != USER_TYPE for each in (owner, *renewers)):
        raise Refused(ErrorCode.INVALID_PRINCIPAL_TYPE, "Delegation tokens are of users, and renewed by users.")
    if len(renewers) > RENEWERS_MAX or any(len(each.name) > NAME_CHARS_MAX for each in (owner, *renewers)):
        raise Refused(ErrorCode.INVALID_REQUEST, f"There may be {RENEWERS_MAX} renewers, with names of some length.")
    lifetime_ms = min(max_lifetime_ms, lifetimes.max_ms) if max_lifetime_ms > 0 else lifetimes.max_ms
    max_timestamp = now_ms + lifetime_ms
    return TokenImage(
        token_id=token_id,
        owner=owner,
        requester=requester,
        renewers=tuple(renewers),
        issue_timestamp=now_ms,
        max_timestamp=max_timestamp,
        expiry_timestamp=min(now_ms + lifetimes.expiry_ms, max_timestamp),
    )


def check_has_room(image: Image, requester: Principal, *, now_ms: int) -> None:
    """Whether one more token may be made for them."""
    tokens = image.credentials.tokens.values()
    if sum(each.requester == requester and each.ends_at_ms >= now_ms for each in tokens) >= TOKENS_MAX:
        raise Refused(ErrorCode.POLICY_VIOLATION, f"{requester} has asked for {TOKENS_MAX} tokens that have not ended.")


def renewed(
    token: TokenImage | None, principal: Principal, *, period_ms: int, lifetimes: Lifetimes, now_ms: int
) -> TokenImage:
    """With a later end: one period from now, and no later than its maximum."""
    found = _alive(_found(token), now_ms)
    _check_is_of(found, principal)
    period_ms = period_ms if period_ms > 0 else lifetimes.expiry_ms
    return replace(found, expiry_timestamp=min(now_ms + period_ms, found.max_timestamp))


def expired(token: TokenImage | None, principal: Principal, *, period_ms: int, now_ms: int) -> TokenImage | None:
    """With an earlier end; None: it ends now, which a negative period asks for."""
    found = _found(token)
    _check_is_of(found, principal)
    if period_ms < 0:
        return None
    return replace(_alive(found, now_ms), expiry_timestamp=min(now_ms + period_ms, found.max_timestamp))


def _found(token: TokenImage | None) -> TokenImage:
    if token is None:
        raise Refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no such token.")
    return token


def _alive(token: TokenImage, now_ms: int) -> TokenImage:
    if token.ends_at_ms < now_ms:
        raise Refused(ErrorCode.DELEGATION_TOKEN_EXPIRED, "The token has expired.")
    return token


def _check_is_of(token: TokenImage, principal: Principal) -> None:
    if not token.is_renewed_by(principal):
        raise Refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "The token belongs to another user.")


def sweep(image: Image, *, now_ms: int) -> list[Record]:
    """What ends the tokens that have expired."""
    return list(_removals(image, now_ms))


def _removals(image: Image, now_ms: int) -> Iterator[Record]:
    for token in image.credentials.tokens.values():
        if token.ends_at_ms < now_ms:
            yield RemoveDelegationTokenRecord(token_id=token.token_id)
