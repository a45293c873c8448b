"""Logins at one node: which mechanisms its listeners offer, and from where each has its users."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Final

from tidemark.broker.config import BrokerConfig, Listener
from tidemark.broker.config.errors import ConfigError
from tidemark.broker.config.sasl import ListenerSasl
from tidemark.broker.core.principal import Principal
from tidemark.broker.metadata.credentials import MECHANISM_NUMBERS
from tidemark.broker.metadata.image import Image
from tidemark.broker.security.delegation_tokens import DelegationTokens
from tidemark.broker.security.sasl.decoys import Decoys
from tidemark.broker.security.sasl.exchange import Login, NewMechanism, SaslExchange
from tidemark.broker.security.sasl.gate import Handle, SaslGate
from tidemark.broker.security.sasl.login_log import LoginLog
from tidemark.broker.security.sasl.node_user import NodeUser
from tidemark.broker.security.sasl.plain import Check, PlainServer, check_against
from tidemark.broker.security.sasl.scram import USER_TYPE, Derive, KnownUser, ScramServer, ScramUsers
from tidemark.environment import new_executor, random_bytes
from tidemark.protocol.sasl import scram

THREADS: Final = 2
NONCE_BYTES: Final = 24
DECOY_KEY_BYTES: Final = 32


class SaslAuthentication:
    def __init__(
        self,
        config: BrokerConfig,
        *,
        image: Callable[[], Image],
        now_ms: Callable[[], int],
        current_config: Callable[[], BrokerConfig],
        tokens: DelegationTokens,
        random_bytes: Callable[[int], bytes] = random_bytes,
    ) -> None:
        self._config = config
        self._image = image
        self._now_ms = now_ms
        self._current_config = current_config
        self._tokens = tokens
        self._random_bytes = random_bytes
        self._decoy_key = random_bytes(DECOY_KEY_BYTES)
        self._loop = asyncio.get_running_loop()
        self.threads = new_executor(THREADS, name="login")
        self.log = LoginLog(clock=self._loop.time)

    def gate(self, listener: Listener, serve: Handle) -> SaslGate:
        """What handles the requests of a SASL listener, with `serve` behind it."""
        sasl = ListenerSasl(self._config, listener.name)
        mechanisms = self.mechanisms(listener)
        return SaslGate(
            serve=serve,
            new_exchange=partial(self._exchange, mechanisms, sasl),
            loop=self._loop,
            executor=self.threads,
            log=self.log,
            failure_delay_seconds=self.failure_delay_seconds,
            request_bytes_max=self._config.socket_request_max_bytes,
        )

    def mechanisms(self, listener: Listener) -> dict[str, NewMechanism]:
        """Those that are enabled on a listener."""
        sasl = ListenerSasl(self._config, listener.name)
        return {name: self._mechanism(name, sasl) for name in sasl.mechanisms}

    def failure_delay_seconds(self) -> float:
        return self._current_config().connection_failed_authentication_delay_ms / 1000

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _exchange(
        self, mechanisms: Mapping[str, NewMechanism], sasl: ListenerSasl, previous: Login | None
    ) -> SaslExchange:
        lifetime_ms = partial(_lifetime_ms, sasl, self._now_ms)
        return SaslExchange(mechanisms, lifetime_ms=lifetime_ms, previous=previous)

    def _now_seconds(self) -> float:
        return self._now_ms() / 1000

    # -- mechanisms --------------------------------------------------------

    def _mechanism(self, name: str, sasl: ListenerSasl) -> NewMechanism:
        if name == "PLAIN":
            return self._plain(sasl)
        if name in scram.HASHES:
            return self._scram(name, sasl)
        return self._oauthbearer(sasl)

    def _plain(self, sasl: ListenerSasl) -> NewMechanism:
        handler = sasl.plain_callback_class
        check = check_against(sasl.plain_users) if handler is None else check_by(handler)
        return lambda: PlainServer(check, blocks=handler is not None)

    def _oauthbearer(self, sasl: ListenerSasl) -> NewMechanism:
        from tidemark.broker.security.sasl.jwks import KeySet, fetch_from
        from tidemark.broker.security.sasl.jwt_validation import Expected, JwtValidator, UnsecuredJwtValidator
        from tidemark.broker.security.sasl.oauthbearer import OAuthBearerServer, Validate

        config = sasl.oauth
        expected = Expected(
            issuer=config.sasl_oauthbearer_expected_issuer,
            audience=config.sasl_oauthbearer_expected_audience,
            sub_claim=config.sasl_oauthbearer_sub_claim_name,
            scope_claim=config.sasl_oauthbearer_scope_claim_name,
            skew_seconds=config.sasl_oauthbearer_clock_skew_seconds,
        )
        validate: Validate
        if sasl.allows_unsecured_tokens:
            validate = UnsecuredJwtValidator(expected, now=self._now_seconds)
        else:
            keys = KeySet(
                fetch_from(config.sasl_oauthbearer_jwks_endpoint_url or ""),
                clock=self._loop.time,
                refresh_seconds=config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
                retry_seconds=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000,
                retry_seconds_max=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000,
            )
            validate = JwtValidator(keys, expected, now=self._now_seconds)
        return lambda: OAuthBearerServer(validate)

    def _scram(self, mechanism: str, sasl: ListenerSasl) -> NewMechanism:
        login = sasl.node_login
        node_user = None if login is None else NodeUser(*login, random_bytes=self._random_bytes)
        known = ScramUsers(
            mechanism=mechanism,
            users=partial(self._scram_user, mechanism, node_user),
            tokens=partial(self._tokens.lookup, mechanism),
            decoy=Decoys(mechanism, lambda: self._image().credentials.scram, key=self._decoy_key),
        )
        return lambda: ScramServer(known, nonce=self._random_bytes(NONCE_BYTES).hex())

    def _scram_user(self, mechanism: str, node_user: NodeUser | None, user: str) -> KnownUser | Derive | None:
        if node_user is not None and user == node_user.name:
            return node_user.lookup(mechanism)
        credential = self._image().credentials.scram.get(user, {}).get(MECHANISM_NUMBERS[mechanism])
        return None if credential is None else KnownUser(Principal(USER_TYPE, user), credential)


def _lifetime_ms(
    sasl: ListenerSasl, now_ms: Callable[[], int], mechanism: str, expires_at_ms: int | None
) -> int | None:
    """KIP-368: as long as the broker allows, and no longer than the credential."""
    limits = [
        sasl.max_reauth_ms(mechanism) or None,
        None if expires_at_ms is None else max(expires_at_ms - now_ms(), 0),
    ]
    return min((limit for limit in limits if limit is not None), default=None)


def check_by(class_name: str) -> Check:
    """A class of the operator's own decides."""
    module, _, name = class_name.replace(":", ".").rpartition(".")
    try:
        made = getattr(import_module(module), name)()
        check: Check = made.authenticate
        if inspect.iscoroutinefunction(check):
            raise TypeError("its authenticate() is a coroutine, and must be a plain method: it runs on a thread")
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        key = "sasl.server.callback.handler.class"
        raise ConfigError(f"{key}: {class_name} cannot be used: {error}.", key=key) from error
    return check
