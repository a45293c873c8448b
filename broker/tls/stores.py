"""Key and trust stores: PEM files or texts, and PKCS12 files, as settings name them.

A store is read once, whole: what is checked is what is used, however soon the file changes again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.broker.config import BrokerConfig, ConfigError

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
STORE_BYTES_MAX: Final = 16 << 20
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_REVOCATIONS: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_KEY: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.+?-----END \1PRIVATE KEY-----", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyStore:
    """A private key and the chain of its certificate, the node's own first, as PEM."""

    key: bytes
    chain: tuple[bytes, ...]
    password: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    certificates: tuple[bytes, ...]
    revocations: tuple[bytes, ...] = ()  # lists of certificates that are not trusted any more (RFC 5280), as PEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """What one listener shows of itself, and whom it trusts."""

    keys: KeyStore | None
    trusted: TrustStore | None


def read_stores(config: BrokerConfig) -> Stores:
    """Reads files: not for the event loop. Raises ConfigError."""
    return Stores(keys=key_store(config), trusted=trust_store(config))


def key_store(config: BrokerConfig) -> KeyStore | None:
    """What the ssl.keystore settings say; None if they say nothing."""
    name, inline = "ssl.keystore.location", config.ssl_keystore_key
    if inline is not None or config.ssl_keystore_certificate_chain is not None:
        _require_pem("ssl.keystore", config.ssl_keystore_type, config.ssl_keystore_location)
        return _pem_key_store(
            "ssl.keystore.key", config, f"{inline or ''}\n{config.ssl_keystore_certificate_chain or ''}"
        )
    if config.ssl_keystore_location is None:
        return None
    data = _read(name, config.ssl_keystore_location)
    if _is_pem(data):
        return _pem_key_store(name, config, data.decode(errors="replace"))
    return _pkcs12_key_store(name, data, config)


def trust_store(config: BrokerConfig) -> TrustStore | None:
    """What the ssl.truststore settings say; None if they say nothing."""
    name = "ssl.truststore.location"
    if config.ssl_truststore_certificates is not None:
        _require_pem("ssl.truststore", config.ssl_truststore_type, config.ssl_truststore_location)
        return _pem_trust_store("ssl.truststore.certificates", config.ssl_truststore_certificates.encode())
    if config.ssl_truststore_location is None:
        return None
    data = _read(name, config.ssl_truststore_location)
    if _is_pem(data):
        return _pem_trust_store(name, data)
    return _pkcs12_trust_store(name, data, config)


def _require_pem(store: str, kind: str, location: str | None) -> None:
    if kind != "PEM":
        raise ConfigError(f"{store}.type: it must be PEM where the store is given as text, not {kind}.", key=store)
    if location is not None:
        raise ConfigError(f"{store}.location: the store is given as text as well; only one may be.", key=store)


def _read(name: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name}: {location} cannot be read: {error.strerror}.", key=name, value=location) from None
    if data.startswith(JKS_MAGIC):
        raise ConfigError(
            f"{name}: {location} is in Java's old JKS format, which is not read here. Make a PKCS12 file of it:"
            " keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12.",
            key=name,
            value=location,
        )
    if not data or len(data) > STORE_BYTES_MAX:
        raise ConfigError(f"{name}: {location} is empty, or too long for a store.", key=name, value=location)
    return data


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _pem_key_store(name: str, config: BrokerConfig, text: str) -> KeyStore:
    data = text.replace("\\n", "\n").encode()  # on one line, as environment variables have it
    key, chain = _KEY.search(data), _CERTIFICATE.findall(data)
    if key is None or not chain:
        raise ConfigError(f"{name}: there must be a private key and its certificate.", key=name)
    return KeyStore(key=key[0], chain=tuple(chain), password=config.ssl_key_password or config.ssl_keystore_password)


def _pem_trust_store(name: str, data: bytes) -> TrustStore:
    text = data.replace(b"\\n", b"\n")
    certificates = _CERTIFICATE.findall(text)
    if not certificates:
        raise ConfigError(f"{name}: there is no certificate.", key=name)
    return TrustStore(certificates=tuple(certificates), revocations=tuple(_REVOCATIONS.findall(text)))


def _pkcs12_key_store(name: str, data: bytes, config: BrokerConfig) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        store = pkcs12.load_pkcs12(data, _encoded(config.ssl_keystore_password))
    except ValueError as error:
        raise _unreadable(name, config.ssl_keystore_location, error) from None
    if store.key is None or store.cert is None:
        raise ConfigError(f"{name}: the store has no private key with a certificate.", key=name)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = (store.cert, *store.additional_certs)
    pems = tuple(each.certificate.public_bytes(Encoding.PEM) for each in chain)
    return KeyStore(key=key, chain=pems, password=None)


def _pkcs12_trust_store(name: str, data: bytes, config: BrokerConfig) -> TrustStore:
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    try:
        store = pkcs12.load_pkcs12(data, _encoded(config.ssl_truststore_password))
    except ValueError as error:
        raise _unreadable(name, config.ssl_truststore_location, error) from None
    found = [*([] if store.cert is None else [store.cert]), *store.additional_certs]
    if not found:
        raise ConfigError(f"{name}: the store has no certificate.", key=name)
    return TrustStore(certificates=tuple(each.certificate.public_bytes(Encoding.PEM) for each in found))


def _encoded(password: str | None) -> bytes | None:
    return None if password is None else password.encode()


def _unreadable(name: str, location: str | None, error: ValueError) -> ConfigError:
    message = f"{name}: {location} cannot be read; its password may be wrong, or it is no PKCS12 or PEM file ({error})."
    return ConfigError(message, key=name, value=location)
