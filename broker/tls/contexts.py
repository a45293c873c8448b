"""OpenSSL's contexts, made from the settings of a listener: one to accept with, one to connect with."""

from __future__ import annotations

import ssl
from typing import Final

from tidemark import portable
from tidemark.broker.config import BrokerConfig, ConfigError
from tidemark.broker.tls import cipher_suites
from tidemark.broker.tls.stores import KeyStore, Stores, TrustStore

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(config: BrokerConfig, stores: Stores) -> ssl.SSLContext:
    """For a listener with these settings (see `BrokerConfig.of_listener`), or a ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, config)
    context.verify_mode = CLIENT_AUTH[config.ssl_client_auth]
    if stores.keys is None:
        raise ConfigError(
            "ssl.keystore.location: a TLS listener needs a key store, or ssl.keystore.key and its certificate chain.",
            key="ssl.keystore.location",
        )
    _present(context, stores.keys)
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, stores.trusted, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(config: BrokerConfig, stores: Stores) -> ssl.SSLContext:
    """For connections to other nodes on a listener with these settings."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, config)
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    if stores.keys is not None:
        _present(context, stores.keys)
    _trust(context, stores.trusted, ssl.Purpose.SERVER_AUTH)
    return context


def _limit(context: ssl.SSLContext, config: BrokerConfig) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION
    enabled = set(config.ssl_enabled_protocols)
    if config.ssl_protocol == "TLSv1.2":
        enabled.discard("TLSv1.3")
    if suites := config.ssl_cipher_suites:
        enabled &= _choose(context, suites)
    if not enabled:
        raise ConfigError(
            "ssl.enabled.protocols: together with ssl.protocol and ssl.cipher.suites it leaves no version of TLS.",
            key="ssl.enabled.protocols",
        )
    context.minimum_version = VERSIONS[min(enabled)]
    context.maximum_version = VERSIONS[max(enabled)]


def _choose(context: ssl.SSLContext, suites: tuple[str, ...]) -> set[str]:
    """Sets the suites; returns the versions of TLS that have any."""
    versions = {"TLSv1.3"} if cipher_suites.modern(suites) else set()
    if names := cipher_suites.openssl_names(suites):
        try:
            context.set_ciphers(":".join(names))
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites: OpenSSL knows none of {', '.join(names)}, or thinks none of them safe.",
                key="ssl.cipher.suites",
                value=",".join(suites),
            ) from None
        versions.add("TLSv1.2")
    return versions


def _present(context: ssl.SSLContext, keys: KeyStore) -> None:
    """Python's ssl takes keys from files only; this one is never on a disk, where the system allows it."""
    with portable.unnamed_file(b"\n".join((keys.key, *keys.chain))) as path:
        try:
            context.load_cert_chain(path, password=keys.password or "")
        except ssl.SSLError as error:
            raise ConfigError(
                "ssl.keystore: key and certificate cannot be used; the key's password (ssl.key.password) may be"
                f" wrong, or they do not belong together ({error.reason or error}).",
                key="ssl.keystore.location",
            ) from None


def _trust(context: ssl.SSLContext, trusted: TrustStore | None, purpose: ssl.Purpose) -> None:
    if trusted is None:
        context.load_default_certs(purpose)
        return
    # As in Java, every certificate in the store is trusted, not only those that signed themselves.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"\n".join(trusted.certificates).decode())
        if trusted.revocations:
            _revoke(context, trusted.revocations)
    except ssl.SSLError as error:
        message = f"ssl.truststore: a certificate or a revocation list cannot be read ({error.reason or error})."
        raise ConfigError(message, key="ssl.truststore.location") from None


def _revoke(context: ssl.SSLContext, lists: tuple[bytes, ...]) -> None:
    """From now on the issuer of a certificate must have a list, and the list must be of this time: OpenSSL trusts
    nobody otherwise."""
    with portable.unnamed_file(b"\n".join(lists)) as path:
        context.load_verify_locations(cafile=path)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
