"""How a client of ours connects securely: settings by Java's or librdkafka's names, for librdkafka and for sockets.

Both families of names are taken, so that a file written for Kafka's own tools (`--command-config`) works here.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark import portable

if TYPE_CHECKING:
    import ssl

    from tidemark.protocol.sasl.client import Login

ENCRYPTED: Final = ("SSL", "SASL_SSL")
# What means the same under another name. Types of stores are found out by looking.
_NAMES: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.mechanism": "sasl.mechanisms",
}
_JAVA_ONLY: Final = ("ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password", "ssl.protocol")
_PEM: Final = b"-----BEGIN "


class BadSecurity(ValueError):
    """Settings that cannot be used; the message is a sentence."""


def for_librdkafka(given: Mapping[str, str]) -> dict[str, str]:
    """The same settings by librdkafka's names."""
    settings = {_NAMES.get(name, name): value for name, value in given.items() if name not in _JAVA_ONLY}
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    if (trusted := settings.pop("ssl.truststore.location", None)) is not None:
        settings.update(_trusted(trusted, given.get("ssl.truststore.password")))
    store = settings.get("ssl.keystore.location")
    if store is not None and _is_pem(store):
        del settings["ssl.keystore.location"]
        settings.pop("ssl.keystore.password", None)
        settings["ssl.certificate.location"] = settings["ssl.key.location"] = store
    return settings


def for_java(given: Mapping[str, str]) -> dict[str, str]:
    """The same settings by the Java client's names."""
    settings = dict(given)
    if settings.pop("enable.ssl.certificate.verification", "true").lower() == "false":
        raise BadSecurity("The Java client always verifies certificates: name the authority (ssl.ca.location).")
    if (trusted := settings.pop("ssl.ca.location", None)) is not None:
        settings |= {"ssl.truststore.location": trusted, "ssl.truststore.type": "PEM"}
    if (trusted := settings.pop("ssl.ca.pem", None)) is not None:
        settings |= {"ssl.truststore.certificates": trusted, "ssl.truststore.type": "PEM"}
    certificate, key = (settings.pop(f"ssl.{each}.location", None) for each in ("certificate", "key"))
    if certificate is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.certificate.chain"] = _read(certificate).decode()
        settings["ssl.keystore.key"] = _pkcs8(_read(key or certificate).decode(), given.get("ssl.key.password"))
    certificate, key = (settings.pop(f"ssl.{each}.pem", None) for each in ("certificate", "key"))
    if certificate is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.certificate.chain"] = certificate
        settings["ssl.keystore.key"] = _pkcs8(key or certificate, given.get("ssl.key.password"))
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        settings["ssl.endpoint.identification.algorithm"] = ""
    return settings


def _pkcs8(pem: str, password: str | None) -> str:
    """Java reads no other form of a key: those that begin with RSA or EC are written anew, closed as they were."""
    if "BEGIN PRIVATE KEY" in pem or "BEGIN ENCRYPTED PRIVATE KEY" in pem:
        return pem
    from cryptography.hazmat.primitives import serialization as form

    secret = password.encode() if password else None
    try:
        key = form.load_pem_private_key(pem.encode(), secret)
    except (ValueError, TypeError) as error:
        raise BadSecurity(f"The client's key cannot be read: {error}.") from None
    closing = form.BestAvailableEncryption(secret) if secret else form.NoEncryption()
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, closing).decode()


def _trusted(location: str, password: str | None) -> dict[str, str]:
    """librdkafka reads no trust store but PEM."""
    if _is_pem(location):
        return {"ssl.ca.location": location}
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    try:
        store = pkcs12.load_pkcs12(_read(location), password.encode() if password else None)
    except ValueError as error:
        raise BadSecurity(f"{location} is neither PEM nor PKCS12, or its password is wrong ({error}).") from None
    found = [*([] if store.cert is None else [store.cert]), *store.additional_certs]
    return {"ssl.ca.pem": b"".join(each.certificate.public_bytes(Encoding.PEM) for each in found).decode()}


def _is_pem(location: str) -> bool:
    return _PEM in _read(location)


def _read(location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise BadSecurity(f"{location} cannot be read: {error.strerror}.") from None


class ClientSecurity:
    """What the settings mean for connections that we open ourselves (`wire_client`)."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raises BadSecurity."""
        self.settings = for_librdkafka(given)
        self.protocol = self.settings.get("security.protocol", "PLAINTEXT").upper()
        self.login = _login(self.settings) if self.protocol.startswith("SASL_") else None
        self.context: ssl.SSLContext | None = None
        if self.protocol in ENCRYPTED:
            self.context = _context(self.settings)

    @property
    def is_encrypted(self) -> bool:
        return self.context is not None

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:
        """The socket to talk on, after the handshake if there is one. Raises OSError."""
        if self.context is None:
            return connected
        try:
            return self.context.wrap_socket(connected, server_hostname=host)
        except BaseException:
            with contextlib.suppress(OSError):
                connected.close()
            raise


def _login(settings: Mapping[str, str]) -> Login:
    from tidemark.protocol.sasl.client import Login

    missing = [name for name in ("sasl.mechanisms", "sasl.username", "sasl.password") if not settings.get(name)]
    if missing:
        raise BadSecurity(f"{', '.join(missing)} must be given where clients log in.")
    return Login(
        mechanism=settings["sasl.mechanisms"].upper(),
        user=settings["sasl.username"],
        password=settings["sasl.password"],
    )


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.get("ssl.endpoint.identification.algorithm", "https") != "https":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        _trust(context, settings)
        _present(context, settings)
    except (ssl.SSLError, ValueError) as error:
        raise BadSecurity(f"The certificates cannot be used: {error}.") from None
    return context


def _trust(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    import ssl

    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if (location := settings.get("ssl.ca.location")) is not None:
        context.load_verify_locations(cadata=_read(location).decode())
    elif (text := settings.get("ssl.ca.pem")) is not None:
        context.load_verify_locations(cadata=text)
    else:
        context.load_default_certs()


def _present(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    password = settings.get("ssl.key.password", "")
    store = _own(settings)
    if store is None:
        return
    with portable.unnamed_file(store) as path:
        context.load_cert_chain(path, password=password)


def _own(settings: Mapping[str, str]) -> bytes | None:
    """Our key and certificates as PEM; None if there are none."""
    if (location := settings.get("ssl.keystore.location")) is not None:
        return _from_pkcs12(location, settings.get("ssl.keystore.password"))
    parts = []
    for kind in ("ssl.key", "ssl.certificate"):
        if (text := settings.get(f"{kind}.pem")) is not None:
            parts.append(text.encode())
        elif (location := settings.get(f"{kind}.location")) is not None:
            parts.append(_read(location))
    return b"\n".join(parts) or None


def _from_pkcs12(location: str, password: str | None) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        store = pkcs12.load_pkcs12(_read(location), password.encode() if password else None)
    except ValueError as error:
        raise BadSecurity(f"{location} is neither PEM nor PKCS12, or its password is wrong ({error}).") from None
    if store.key is None or store.cert is None:
        raise BadSecurity(f"{location} holds no key with a certificate.")
    chain = (store.cert, *store.additional_certs)
    pems = (each.certificate.public_bytes(Encoding.PEM) for each in chain)
    return store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + b"".join(pems)
