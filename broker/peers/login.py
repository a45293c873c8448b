"""Logging in at another node: what a link does after it has connected, where the other side's listener asks for it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidemark.environment import random_bytes
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.headers import RequestHeader, request_frame, response_body_at
from tidemark.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidemark.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidemark.protocol.sasl.client import OAUTHBEARER, ClientMechanism, Login, LoginRefused, client_mechanism
from tidemark.protocol.schema import DecodeError, api, codec

if TYPE_CHECKING:
    from tidemark.broker.config.sasl import ListenerSasl
    from tidemark.broker.peers.link import Channel, Connector

log = logging.getLogger(__name__)

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
NONCE_BYTES: Final = 24
STEPS_MAX: Final = 5  # of any mechanism, and one more

T = TypeVar("T")


def login_of(sasl: ListenerSasl) -> Login:
    """What this node logs in with at others' listener of that name."""
    if sasl.node_mechanism != OAUTHBEARER:
        return sasl.login
    from tidemark.broker.peers.token_endpoint import tokens_of

    endpoint = sasl.token_endpoint
    return Login(mechanism=OAUTHBEARER, user=endpoint.client_id, token=tokens_of(endpoint))


class LoginConnector:
    """Connects, over TLS or not, and logs in."""

    def __init__(self, login: Login, *, client_id: str, inner: Connector | None = None) -> None:
        self._login = login
        self._client_id = client_id
        self._inner = inner
        self._complaint = ""

    async def connect(self, channel: Channel, host: str, port: int) -> float | None:
        if self._inner is not None:
            await self._inner.connect(channel, host, port)
        else:
            await asyncio.get_running_loop().create_connection(lambda: channel, host, port)
        try:
            lifetime_ms = await self._log_in(channel)
        except (LoginRefused, DecodeError) as error:
            channel.abort("the login failed")
            self._complain(f"{host}:{port}: {error}")
            raise ConnectionError(f"the login failed: {error}") from error
        except BaseException:
            channel.abort("the login was not finished")
            raise
        self._complaint = ""
        return lifetime_ms / 1000 if lifetime_ms > 0 else None

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            log.warning("cannot log in as %s by %s at %s", self._login.user, self._login.mechanism, complaint)
        self._complaint = complaint

    async def _log_in(self, channel: Channel) -> int:
        """Returns for how many milliseconds; 0 is for ever."""
        mechanism = client_mechanism(self._login, new_nonce=lambda: random_bytes(NONCE_BYTES).hex())
        handshake = SaslHandshakeRequest(mechanism=mechanism.name)
        offered = await self._ask(channel, handshake, SaslHandshakeResponse, HANDSHAKE_VERSION)
        if offered.error_code != ErrorCode.NONE:
            raise LoginRefused(f"the other node offers {', '.join(offered.mechanisms) or 'no login'}")
        return await self._exchange(channel, mechanism)

    async def _exchange(self, channel: Channel, mechanism: ClientMechanism) -> int:
        loop = asyncio.get_running_loop()
        lifetime_ms, challenge = 0, b""
        for _ in range(STEPS_MAX):
            # SCRAM derives its keys in one of these steps, for milliseconds.
            token = await loop.run_in_executor(None, mechanism.respond, challenge)
            if token is None:
                return lifetime_ms
            request = SaslAuthenticateRequest(auth_bytes=token)
            answer = await self._ask(channel, request, SaslAuthenticateResponse, AUTHENTICATE_VERSION)
            if answer.error_code != ErrorCode.NONE:
                raise LoginRefused(answer.error_message or f"error {answer.error_code}")
            lifetime_ms, challenge = answer.session_lifetime_ms, bytes(answer.auth_bytes)
        raise LoginRefused("the exchange does not end")

    async def _ask(self, channel: Channel, request: Any, response: type[T], version: int) -> T:
        declared = api(type(request))
        body = bytearray()
        codec(type(request), version).encode(request, body)
        # Before the link has the channel, nobody else uses a correlation id on it.
        header = RequestHeader(declared.key, version, 0, self._client_id)
        answer = await channel.ask(0, request_frame(header, body, flexible=version in declared.flexible))
        decoded: T = codec(response, version).decode(answer, response_body_at(answer, response, version))
        return decoded
