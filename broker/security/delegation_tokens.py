"""Delegation tokens (KIP-48) on one node: their HMACs, logins by them, and the sweep of those that have expired.

A token's HMAC is its password. It is made from the token's id and `delegation.token.secret.key`, which all nodes share,
so it is stored nowhere.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.periodic import Job
from tidemark.broker.core.principal import Principal
from tidemark.broker.core.registry import Call
from tidemark.broker.metadata.credentials import TokenImage, token_record
from tidemark.broker.metadata.delegation_tokens import Lifetimes, check_has_room, check_may_ask, sweep
from tidemark.broker.metadata.features import check_security_level
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record, RemoveDelegationTokenRecord
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.security.access import Access
from tidemark.broker.security.rights import Decision
from tidemark.broker.security.sasl.decoys import SALT_BYTES
from tidemark.broker.security.sasl.scram import Derive, KnownUser
from tidemark.environment import random_bytes
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from tidemark.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from tidemark.protocol.sasl.scram import make_credential

if TYPE_CHECKING:
    from tidemark.broker.security.guard import Guard

TOKEN_ID_BYTES: Final = 16
DERIVED_MAX: Final = 1000  # credentials kept, so that a token's later logins cost nothing

R = TypeVar("R", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


class Change(Protocol):
    """What becomes of a token; None: it ends. Raises Refused."""

    def __call__(self, token: TokenImage | None, principal: Principal, /, *, now_ms: int) -> TokenImage | None: ...


OWN: Final = Decision(True, "a token is its owner's affair")
NOT_OWN: Final = Decision(False, "the token belongs to another user, who has not named the client as a renewer")


def _tell_owner_mismatch(access: Access | None, token: TokenImage | None, principal: Principal) -> None:
    """To the audit log, of a token that somebody wants to renew or to end. No entry can allow that to others."""
    if access is not None and token is not None:
        decision = OWN if token.is_renewed_by(principal) else NOT_OWN
        access.tell(decision, AclOperation.ALTER, ResourceType.DELEGATION_TOKEN, token.token_id)


class DelegationTokens:
    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        *,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes] = random_bytes,
    ) -> None:
        self._config = config
        self._store = store
        self.now_ms = now_ms
        self._random_bytes = random_bytes
        self._derived: dict[tuple[str, str], KnownUser] = {}  # by mechanism and token id

    @property
    def are_enabled(self) -> bool:
        return bool(self._config.delegation_token_secret_key)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        config = self._config
        return Lifetimes(
            max_ms=config.delegation_token_max_lifetime_ms, expiry_ms=config.delegation_token_expiry_time_ms
        )

    def check(self, principal: Principal) -> None:
        """Whether there are tokens here at all, and for this principal."""
        check_may_ask(principal)
        if not self.are_enabled:
            raise Refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set.")

    def new_id(self) -> str:
        return base64.urlsafe_b64encode(self._random_bytes(TOKEN_ID_BYTES)).decode().rstrip("=")

    def hmac_of(self, token_id: str) -> bytes:
        secret = self._config.delegation_token_secret_key
        assert secret, "checked before"
        return hmac.digest(secret.encode(), token_id.encode(), "sha512")

    def find(self, image: Image, hmac_given: bytes) -> TokenImage | None:
        """The token that this is the HMAC of."""
        tokens = image.credentials.tokens.values()
        found = [each for each in tokens if hmac.compare_digest(self.hmac_of(each.token_id), hmac_given)]
        return found[0] if found else None

    # -- changes, on the controller ----------------------------------------

    async def create(self, token: TokenImage) -> None:
        def decide(image: Image) -> list[Record]:
            check_security_level(image)
            check_has_room(image, token.requester, now_ms=self.now_ms())
            return [token_record(token)]

        await self._store.change(decide)

    async def change_expiry(
        self, change: Change, hmac_given: bytes, call: Call, response: type[R], *, guard: Guard | None
    ) -> R:
        """The answer to a request that changes when a token ends."""
        principal, now_ms = call.connection.principal, self.now_ms()
        access = None if guard is None else guard.access(response.__name__.removesuffix("Response"), response, call)

        def told_and_changed(token: TokenImage | None) -> TokenImage | None:
            _tell_owner_mismatch(access, token, principal)
            return change(token, principal, now_ms=now_ms)

        try:
            self.check(principal)
            token = await self._change(hmac_given, told_and_changed)
        except Refused as refusal:
            if refusal.code == ErrorCode.NOT_CONTROLLER:
                raise
            return response(error_code=refusal.code)
        return response(expiry_timestamp_ms=now_ms if token is None else token.expiry_timestamp)

    async def _change(
        self, hmac_given: bytes, change: Callable[[TokenImage | None], TokenImage | None]
    ) -> TokenImage | None:
        """What the token became; None: it has ended."""
        changed: TokenImage | None = None

        def decide(image: Image) -> list[Record]:
            nonlocal changed
            token = self.find(image, hmac_given)
            changed = change(token)
            assert token is not None, "a change of no token is refused"
            return [RemoveDelegationTokenRecord(token_id=token.token_id) if changed is None else token_record(changed)]

        await self._store.change(decide)
        return changed

    def jobs(self) -> list[Job]:
        async def run() -> None:
            if self._store.is_controller:
                await self._store.change(lambda image: sweep(image, now_ms=self.now_ms()))

        return [Job(lambda: self._config.delegation_token_expiry_check_interval_ms, run)] if self.are_enabled else []

    # -- logins ------------------------------------------------------------

    def lookup(self, mechanism: str, token_id: str) -> KnownUser | Derive | None:
        """For SCRAM: the owner, whose password is the HMAC in base64. A token that is unknown takes as long."""
        if not self.are_enabled:
            return None
        token = self._store.image.credentials.tokens.get(token_id)
        if token is None or token.ends_at_ms < self.now_ms():
            return lambda: self._derive(mechanism, token_id, None)
        known = self._derived.get((mechanism, token_id))
        if known is not None:
            return known._replace(expires_at_ms=token.ends_at_ms)
        return lambda: self._derive(mechanism, token_id, token)

    def _derive(self, mechanism: str, token_id: str, token: TokenImage | None) -> KnownUser | None:
        password = base64.b64encode(self.hmac_of(token_id)).decode()
        credential = make_credential(mechanism, password, salt=self._random_bytes(SALT_BYTES))
        if token is None:
            return None
        owner = Principal(token.owner.type, token.owner.name, token_authenticated=True)
        known = KnownUser(owner, credential, token.ends_at_ms)
        if len(self._derived) >= DERIVED_MAX:
            self._derived.clear()
        self._derived[mechanism, token_id] = known
        return known
