"""A node's ends of TLS: for each listener that speaks it, what accepts there and what connects to others' there."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from typing import Final, Protocol

from tidemark.broker.config import BrokerConfig, ConfigError, Listener
from tidemark.broker.core.limited_log import LimitedLog
from tidemark.broker.core.principal import ANONYMOUS, Principal
from tidemark.broker.tls import cipher_suites
from tidemark.broker.tls.contexts import client_context, server_context
from tidemark.broker.tls.distinguished_name import subject_of
from tidemark.broker.tls.failures import HandshakeFailed
from tidemark.broker.tls.handshakes import Handshakes
from tidemark.broker.tls.layer import TlsLayer
from tidemark.broker.tls.principal_mapping import NoRuleMatches, PrincipalMapping
from tidemark.broker.tls.renewal import require_same_names
from tidemark.broker.tls.stores import Stores, read_stores

log = logging.getLogger(__name__)

CONNECT_SECONDS_MAX: Final = 3.0


class Served(Protocol):
    """What the acceptor knows of a connection that it secures."""

    peer: str
    principal: Principal


class Acceptor:
    """Accepts on one listener. `context` may be replaced: connections that exist keep theirs."""

    def __init__(
        self, listener: Listener, config: BrokerConfig, stores: Stores, handshakes: Handshakes, log: LimitedLog
    ) -> None:
        self.listener = listener
        self.failed_count = 0  # connections that ended because TLS did not work
        self.context = server_context(config, stores)
        self._handshakes = handshakes
        self._log = log
        self._mapping = PrincipalMapping(config.ssl_principal_mapping_rules)
        self._suites = cipher_suites.modern(config.ssl_cipher_suites)
        self._seconds_max = config.tidemark_ssl_handshake_timeout_ms / 1000
        self._names_clients = listener.security_protocol == "SSL"  # elsewhere SASL does

    def layer(self, protocol: asyncio.BufferedProtocol, served: Served) -> TlsLayer:
        """The protocol for a new connection, under the one that serves it (which is `served` as well)."""
        return TlsLayer(
            protocol,
            self.context,
            self._handshakes,
            seconds_max=self._seconds_max,
            secured=lambda secured: self._secured(served, secured),
            failed=lambda reason: self._failed(served, reason),
        )

    def _secured(self, served: Served, secured: ssl.SSLObject) -> None:
        cipher = secured.cipher()
        if self._suites and cipher is not None and cipher[1] == "TLSv1.3" and cipher[0] not in self._suites:
            raise HandshakeFailed("it speaks none of our cipher suites")
        if self._names_clients:
            served.principal = self._principal(secured.getpeercert(binary_form=True))

    def _principal(self, certificate: bytes | None) -> Principal:
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal("User", self._mapping.name_of(subject_of(certificate)))
        except NoRuleMatches as error:
            raise HandshakeFailed(str(error)) from None

    def _failed(self, served: Served, reason: str) -> None:
        self.failed_count += 1
        self._log.warning("closing the connection from %s to %s: %s", served.peer, self.listener, reason)


class Connector:
    """Connects to other nodes on the listener of one name. `context` may be replaced."""

    def __init__(self, config: BrokerConfig, stores: Stores, handshakes: Handshakes) -> None:
        self.context = client_context(config, stores)
        self._handshakes = handshakes

    async def connect(self, protocol: asyncio.BufferedProtocol, host: str, port: int) -> None:
        """Returns when the handshake is done. Raises OSError."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def failed(reason: str) -> None:
            if not done.done():
                done.set_exception(ConnectionError(reason))

        layer = TlsLayer(
            protocol,
            self.context,
            self._handshakes,
            server_hostname=host,
            seconds_max=CONNECT_SECONDS_MAX,
            secured=lambda _: None if done.done() else done.set_result(None),
            failed=failed,
        )
        await loop.create_connection(lambda: layer, host, port)
        try:
            await done
        except BaseException:
            layer.abort()
            raise


class TlsEndpoints:
    def __init__(self, config: BrokerConfig, listeners: Iterable[Listener]) -> None:
        """Raises ConfigError for what cannot be used."""
        loop = asyncio.get_running_loop()
        self._handshakes = Handshakes(loop)
        self._stores: dict[str, Stores] = {}
        self._acceptors: dict[str, Acceptor] = {}
        self._connectors: dict[str, Connector] = {}
        self._complaints: dict[str, str] = {}
        limited = LimitedLog(log, clock=loop.time)
        for each in listeners:
            own = config.of_listener(each.name)
            stores = self._stores[each.name] = read_stores(own)
            self._acceptors[each.name] = Acceptor(each, own, stores, self._handshakes, limited)
            self._connectors[each.name] = Connector(own, stores, self._handshakes)

    def acceptor(self, listener: str) -> Acceptor | None:
        return self._acceptors.get(listener)

    def connector(self, listener: str) -> Connector | None:
        """What connects to others' listener of this name; None if that does not speak TLS."""
        return self._connectors.get(listener)

    def failed_counts(self) -> dict[str, int]:
        """Of each listener: how many connections TLS has ended."""
        return {name: each.failed_count for name, each in self._acceptors.items()}

    def close(self) -> None:
        self._handshakes.close()

    # -- renewed certificates ------------------------------------------------

    def check(self, config: BrokerConfig) -> None:
        """Raise a ConfigError if these settings name stores that cannot take the place of the present ones."""
        for name in self._acceptors:
            self._contexts(name, config.of_listener(name))

    async def renew(self, config: BrokerConfig) -> None:
        """Use what the stores hold now. What cannot be used is logged, once, and changes nothing."""
        for name in self._acceptors:
            try:
                await self._renew(name, config.of_listener(name))
                self._complaints.pop(name, None)
            except ConfigError as error:
                if self._complaints.get(name) != str(error):
                    self._complaints[name] = str(error)
                    log.error("listener %s keeps its certificates: %s", name, error)

    async def _renew(self, name: str, config: BrokerConfig) -> None:
        made = await asyncio.get_running_loop().run_in_executor(None, self._contexts, name, config)
        if made is None:
            return
        self._stores[name], self._acceptors[name].context, self._connectors[name].context = made
        log.info("listener %s uses the renewed certificates of its stores", name)

    def _contexts(self, name: str, config: BrokerConfig) -> tuple[Stores, ssl.SSLContext, ssl.SSLContext] | None:
        """What would take the place of the present stores and contexts; None if they are the same."""
        stores, before = read_stores(config), self._stores[name]
        if stores == before:
            return None
        require_same_names(before.keys, stores.keys, config)
        return stores, server_context(config, stores), client_context(config, stores)
