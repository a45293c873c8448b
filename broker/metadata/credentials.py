"""The credentials in the metadata: users' SCRAM keys, and delegation tokens. As records, and as a part of the image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from tidemark.broker.core.principal import Principal, principal_of
from tidemark.broker.metadata.records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveScramCredentialRecord,
    ScramCredentialRecord,
)
from tidemark.protocol.sasl.scram import Credential

MECHANISM_NUMBERS: Final[Mapping[str, int]] = MappingProxyType({"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2})
MECHANISM_NAMES: Final = MappingProxyType({number: name for name, number in MECHANISM_NUMBERS.items()})

SAME_IN_BOTH: Final = (
    "token_id",
    "issue_timestamp",
    "max_timestamp",
    "expiry_timestamp",
)  # image and record of a token

OfUser = Mapping[int, Credential]  # by the mechanism's number
CredentialRecord = (
    ScramCredentialRecord | RemoveScramCredentialRecord | DelegationTokenRecord | RemoveDelegationTokenRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenImage:
    """A delegation token (KIP-48), but for its HMAC."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int

    @property
    def ends_at_ms(self) -> int:
        return min(self.expiry_timestamp, self.max_timestamp)

    def is_of(self, principal: Principal) -> bool:
        """Whether it belongs to them, was asked for by them, or may be renewed by them."""
        return principal in (self.owner, self.requester, *self.renewers)

    def is_renewed_by(self, principal: Principal) -> bool:
        """Or ended. As in Kafka, not by who asked for it: a token that is made for somebody else is theirs."""
        return principal in (self.owner, *self.renewers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    scram: Mapping[str, OfUser] = field(default_factory=lambda: MappingProxyType({}))
    tokens: Mapping[str, TokenImage] = field(default_factory=lambda: MappingProxyType({}))

    def apply(self, record: CredentialRecord) -> Credentials:
        if isinstance(record, ScramCredentialRecord | RemoveScramCredentialRecord):
            return replace(self, scram=_with_user(self.scram, record))
        tokens = dict(self.tokens)
        if isinstance(record, RemoveDelegationTokenRecord):
            tokens.pop(record.token_id, None)
        else:
            tokens[record.token_id] = token_image(record)
        return replace(self, tokens=tokens)

    def records(self) -> Iterator[CredentialRecord]:
        for user, of_user in self.scram.items():
            for mechanism, credential in of_user.items():
                yield credential_record(user, mechanism, credential)
        for token in self.tokens.values():
            yield token_record(token)


NO_CREDENTIALS: Final = Credentials()


def _with_user(
    users: Mapping[str, OfUser], record: ScramCredentialRecord | RemoveScramCredentialRecord
) -> Mapping[str, OfUser]:
    changed = dict(users)
    of_user = dict(changed.get(record.user, {}))
    of_user.pop(record.mechanism, None)
    if isinstance(record, ScramCredentialRecord):
        of_user[record.mechanism] = Credential(iterations=record.iterations, **_keys(record))
    if of_user:
        changed[record.user] = of_user
    else:
        changed.pop(record.user, None)
    return changed


def credential_record(user: str, mechanism: int, credential: Credential) -> ScramCredentialRecord:
    return ScramCredentialRecord(user=user, mechanism=mechanism, iterations=credential.iterations, **_keys(credential))


def _keys(known: Credential | ScramCredentialRecord) -> dict[str, bytes]:
    return {name: bytes(getattr(known, name)) for name in ("salt", "stored_key", "server_key")}


def token_image(record: DelegationTokenRecord) -> TokenImage:
    return TokenImage(
        owner=principal_of(record.owner),
        requester=principal_of(record.requester),
        renewers=tuple(map(principal_of, record.renewers)),
        **_id_and_times(record),
    )


def token_record(token: TokenImage) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=list(map(str, token.renewers)),
        **_id_and_times(token),
    )


def _id_and_times(token: TokenImage | DelegationTokenRecord) -> dict[str, Any]:
    return {name: getattr(token, name) for name in SAME_IN_BOTH}
