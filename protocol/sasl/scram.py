"""SCRAM (RFC 5802, RFC 7677): its messages, and the keys that prove a password without telling it.

A server keeps `Credential`s: from them a login can be checked, but none can be made. The costly step, PBKDF2, is the
client's (`salted_password`); everything that a server does here takes microseconds.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

HASHES: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
ITERATIONS_BORNE_MAX: Final = 1_000_000  # what a client computes when a server says so: half a second
NO_CHANNEL_BINDING: Final = "n,,"
TOKEN_AUTH: Final = "tokenauth"  # Kafka's extension: the user is a delegation token (KIP-48)
EXTENSIONS_MAX: Final = 16

_SAFE_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\x00]+)*"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9/+]+={0,2}"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_SAFE_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_SAFE_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,8}}){_EXTENSIONS}"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^,\x00]+)|v=(?P<verifier>{_BASE64})){_EXTENSIONS}")


class ScramError(ValueError):
    """What the other side sent is no SCRAM message, or proves nothing. The text holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a server knows of a user's password. Its `repr` shows none of it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    user: str
    authzid: str
    nonce: str
    header: str
    bare: str
    extensions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFinal:
    nonce: str
    channel_binding: bytes
    unproved: str  # the message without its proof
    proof: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFirst:
    nonce: str
    salt: bytes
    iterations: int


# -- keys ------------------------------------------------------------------


def salted_password(mechanism: str, password: str, *, salt: bytes, iterations: int) -> bytes:
    """PBKDF2: milliseconds, on purpose. OpenSSL does it without holding the interpreter's lock."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, *, salt: bytes, iterations: int) -> Credential:
    stored_key = hashlib.new(HASHES[mechanism], _hmac(mechanism, salted, b"Client Key")).digest()
    server_key = _hmac(mechanism, salted, b"Server Key")
    return Credential(salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations)


def make_credential(mechanism: str, password: str, *, salt: bytes, iterations: int = ITERATIONS_MIN) -> Credential:
    salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
    return credential_of(mechanism, salted, salt=salt, iterations=iterations)


def client_proof(mechanism: str, salted: bytes, auth_message: bytes) -> bytes:
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(HASHES[mechanism], client_key).digest()
    return _xor(client_key, _hmac(mechanism, stored_key, auth_message))


def proves(mechanism: str, credential: Credential, proof: bytes, auth_message: bytes) -> bool:
    """Whether the proof was made with the password; how long it takes does not tell how far it is off."""
    signature = _hmac(mechanism, credential.stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    stored_key = hashlib.new(HASHES[mechanism], _xor(proof, signature)).digest()
    return hmac.compare_digest(stored_key, credential.stored_key)


def server_signature(mechanism: str, server_key: bytes, auth_message: bytes) -> bytes:
    return _hmac(mechanism, server_key, auth_message)


def server_key(mechanism: str, salted: bytes) -> bytes:
    return _hmac(mechanism, salted, b"Server Key")


def auth_message(client_first_bare: str, server_first: str, client_final_unproved: str) -> bytes:
    return ",".join((client_first_bare, server_first, client_final_unproved)).encode()


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# -- messages --------------------------------------------------------------


def read_client_first(token: bytes) -> ClientFirst:
    found = _matched(_CLIENT_FIRST, token, "client-first-message")
    pairs = [tuple(item.split("=", 1)) for item in found["extensions"].split(",") if item]
    if len(pairs) > EXTENSIONS_MAX:
        raise ScramError("too many extensions")
    return ClientFirst(
        user=_unescaped(found["user"]),
        authzid=_unescaped(found["authzid"] or ""),
        nonce=found["nonce"],
        header=found["header"],
        bare=found["bare"],
        extensions=dict(pairs),
    )


def read_client_final(token: bytes) -> ClientFinal:
    found = _matched(_CLIENT_FINAL, token, "client-final-message")
    return ClientFinal(
        nonce=found["nonce"],
        channel_binding=_unbase64(found["binding"]),
        unproved=found["unproved"],
        proof=_unbase64(found["proof"]),
    )


def read_server_first(token: bytes) -> ServerFirst:
    found = _matched(_SERVER_FIRST, token, "server-first-message")
    return ServerFirst(nonce=found["nonce"], salt=_unbase64(found["salt"]), iterations=int(found["iterations"]))


def read_server_final(token: bytes) -> bytes:
    """The server's signature; ScramError if it says that the login failed."""
    found = _matched(_SERVER_FINAL, token, "server-final-message")
    if found["error"]:
        raise ScramError(f"the server refuses: {found['error']}")
    return _unbase64(found["verifier"])


def client_first_bare(user: str, nonce: str, *, extensions: str = "") -> str:
    return f"n={escaped(user)},r={nonce}" + (f",{extensions}" if extensions else "")


def server_first(nonce: str, credential: Credential) -> str:
    return f"r={nonce},s={base64_text(credential.salt)},i={credential.iterations}"


def client_final_unproved(header: str, nonce: str) -> str:
    return f"c={base64_text(header.encode())},r={nonce}"


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("not base64") from None


def _matched(pattern: re.Pattern[str], token: bytes, what: str) -> re.Match[str]:
    try:
        found = pattern.fullmatch(token.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise ScramError(f"not a {what}")
    return found
